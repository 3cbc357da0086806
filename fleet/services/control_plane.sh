# shellcheck shell=bash
# The boot script of a control plane. Runs as root, for as long as the machine does: what ends is started again, and the
# machine stays on. Before this line it is told AWS_DEFAULT_REGION and FLEET_CONTROL_PLANE, the SSM parameter with its order.
set -u
base=${HOME:-/opt} # cloud-init sets no HOME
export HOME=${HOME:-/root}
case $0 in
/var/lib/cloud/instance*) # cloud-init runs user data at the first boot only, and what lies in this folder at each later one
    install -m 700 "$0" /var/lib/cloud/scripts/per-boot/inspect-fleet-control-plane
    ;;
esac
while true; do
    if code=$(
        fleet-python - "$base" <<'PYTHON'
import hashlib, io, json, os, pathlib, sys, zipfile
import boto3

try:
    order = json.loads(boto3.client("ssm").get_parameter(Name=os.environ["FLEET_CONTROL_PLANE"])["Parameter"]["Value"])
    sha256 = order["code_sha256"]
    folder = pathlib.Path(sys.argv[1], "fleet-code-" + sha256)
    if not folder.is_dir():
        bucket, key = order["code"][5:].split("/", 1)
        data = boto3.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
        if hashlib.sha256(data).hexdigest() != sha256:
            raise ValueError("the code archive isn't what its SHA-256 says")
        aside = folder.with_suffix(".new")
        zipfile.ZipFile(io.BytesIO(data)).extractall(aside)
        aside.rename(folder)
    print(folder)
except Exception as error:
    sys.exit(f"no order or no code yet ({os.environ['FLEET_CONTROL_PLANE']}): {type(error).__name__}: {error}")
PYTHON
    ); then
        (
            cd "$code" || exit # first on the path of python -m: a copy in the image can't shadow it
            echo "code: $code"
            PYTHONPATH=$code exec fleet-python -m bootstrap.control_plane "$base"
        )
        echo "the control plane ended with exit code $?; it starts again"
    fi
    sleep "${FLEET_RESTART_SECONDS:-10}"
done
