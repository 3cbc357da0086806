#!/usr/bin/env bash
# `fleet-python`: a Python of a fixed minor version with this project's dependencies as they are locked, every file checked by its
# hash. The project's own code isn't there: an instance fetches the version it is to run. uv comes with the dependencies.
set -euo pipefail

lock=$FLEET_BUNDLE/requirements.lock
if command -v fleet-python >/dev/null && fleet-python "$FLEET_BUNDLE/locked.py" "$lock"; then
    echo "fleet-python is there and holds what is locked: kept"
    exit 0
fi

home=$FLEET_ROOT/opt/inspect-fleet
bin=$FLEET_ROOT/usr/local/bin
# The cache stays: an instance's job environments take from it what they share with us. All of it is on one file system, so that
# uv links instead of copying.
export UV_CACHE_DIR=$FLEET_ROOT/opt/uv-cache UV_PYTHON_INSTALL_DIR=$FLEET_ROOT/opt/uv-python UV_NO_PROGRESS=1
install -d -m 0755 "$home" "$bin" "$UV_CACHE_DIR" "$UV_PYTHON_INSTALL_DIR"

# uv itself from the lock, by a pip that goes again.
first=$(mktemp -d)
trap 'rm -rf "$first"' EXIT
python3 -m venv "$first/venv"
sed -n '/^uv==/,/^[^ ]/p' "$lock" | sed -n '1p;/^    --hash/p' >"$first/uv.txt"
"$first/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --require-hashes -r "$first/uv.txt"

uv=$first/venv/bin/uv
"$uv" python install "$FLEET_PYTHON"
"$uv" venv --quiet --clear --python "$FLEET_PYTHON" "$home/venv"
"$uv" pip install --quiet --python "$home/venv/bin/python" --compile-bytecode --require-hashes -r "$lock"

install -m 0755 "$FLEET_BUNDLE/files/fleet-python" "$bin/fleet-python"
ln -sfn /opt/inspect-fleet/venv/bin/uv "$bin/uv"
"$home/venv/bin/python" "$FLEET_BUNDLE/locked.py" "$lock"
