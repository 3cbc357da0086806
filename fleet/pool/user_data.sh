#!/bin/bash
# The first boot of an instance of an ec2 work pool. Runs as root, once; however it ends, the machine powers off.
trap 'shutdown -h now' EXIT
set -euo pipefail
base=${HOME:-/opt} # cloud-init sets no HOME, and /root is closed to a worker user
export HOME=${HOME:-/root}
# What this instance is told stands here: ids, names and addresses; then its command, as the arguments.
#: told
shutdown -h "+$FLEET_LIFETIME_MINUTES"
if [ -z "${FLEET_CODE:-}" ]; then
    "$@"
    exit
fi
code=$(mktemp -d "$base/fleet-code.XXXXXX")
chmod 755 "$code"
fleet-python - "$code" <<'PYTHON'
import hashlib, io, os, sys, time, urllib.request, zipfile
import boto3

told = os.environ
where = lambda address: address[5:].split("/", 1)


def fetch():
    bucket, key = where(told["FLEET_CODE"])
    data = boto3.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    found = hashlib.sha256(data).hexdigest()
    if found != told["FLEET_CODE_SHA256"]:
        raise ValueError("its SHA-256 is " + found)
    zipfile.ZipFile(io.BytesIO(data)).extractall(sys.argv[1])


def report(why):
    imds = told.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254").rstrip("/") + "/latest/"
    ask = lambda path, **more: urllib.request.urlopen(urllib.request.Request(imds + path, **more), timeout=5).read()
    ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    token = ask("api/token", method="PUT", headers=ttl).decode()
    me = ask("meta-data/instance-id", headers={"X-aws-ec2-metadata-token": token}).decode()
    bucket, folder = where(told["FLEET_LOG_FOLDER"])
    boto3.client("s3").put_object(Bucket=bucket, Key=f"{folder}/{me}/boot.log", Body=why.encode())


for wait in 1, 2, 4, 8, 0:  # the role's credentials may lag the launch
    try:
        fetch()
        break
    except Exception as error:
        why = f"fatal: code archive {told['FLEET_CODE']}: {type(error).__name__}: {error}"
        print(why, file=sys.stderr, flush=True)
    time.sleep(wait)
else:
    if "FLEET_LOG_FOLDER" in told:
        report(why)
    sys.exit(1)
PYTHON
cd "$code" # first on the path of python -m: a copy in the image can't shadow it
echo "code: $FLEET_CODE_SHA256 in $code"
PYTHONPATH=$code fleet-python -m bootstrap.boot -- "$@"
