#!/bin/bash
# The only boot of an instance that becomes a worker image. However the bake ends, its report goes to S3 and the machine stops.
work=$(mktemp -d "${TMPDIR:-/run}/fleet-build.XXXXXX") # not on the disk that becomes the image
export FLEET_LOG=$work/build.log
exec > >(tee -a "$FLEET_LOG") 2>&1
finish() {
    code=$?
    trap - EXIT
    echo "bake ended with exit code $code"
    sleep 1 # the log is written by another process
    python3 "$work/plain_s3.py" put "$FLEET_LOG" "$FLEET_BUILD_FOLDER/build.log"
    printf '{"code": %d}\n' "$code" >"$work/build.json"
    python3 "$work/plain_s3.py" put "$work/build.json" "$FLEET_BUILD_FOLDER/build.json"
    shutdown -h now
}
trap finish EXIT
set -euo pipefail
#: told
shutdown -h "+$FLEET_BUILD_MINUTES"
cat >"$work/plain_s3.py" <<'PYTHON'
#: plain_s3
PYTHON
python3 "$work/plain_s3.py" get "$FLEET_BUNDLE_URI" "$work/bundle.zip"
echo "$FLEET_BUNDLE_SHA256  $work/bundle.zip" | sha256sum --check --quiet
python3 -m zipfile -e "$work/bundle.zip" "$work/bundle"
python3 "$work/bundle/drive.py"
