#!/usr/bin/env bash
# NVIDIA's driver and container toolkit, where the recipe asks for them. Without a GPU they take disk space and nothing else:
# the module isn't loaded, so that one image serves c7i and g6 alike.
set -euo pipefail
[ -n "$FLEET_GPU" ] || exit 0

# Canonical builds and signs the modules for its own AWS kernel: nothing is compiled here or at boot. The open modules are the
# ones that new GPUs need; they serve every GPU since Turing, so g4dn and all after it.
branch=570
apt=(apt-get -qq -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 -o Acquire::Retries=5)
"${apt[@]}" install --no-install-recommends \
    "linux-modules-nvidia-$branch-server-open-aws" "nvidia-headless-no-dkms-$branch-server-open" "nvidia-utils-$branch-server"

# The toolkit is only at NVIDIA's. apt-helper comes with apt, in a folder that is on no PATH.
export PATH=$PATH:/usr/lib/apt
keys=$FLEET_ROOT/etc/apt/keyrings
install -d -m 0755 "$keys" "$FLEET_ROOT/etc/apt/sources.list.d"
apt-helper download-file https://nvidia.github.io/libnvidia-container/gpgkey "$keys/nvidia-container-toolkit.asc"
# shellcheck disable=SC2016  # $(ARCH) is apt's own word
printf 'deb [signed-by=%s] https://nvidia.github.io/libnvidia-container/stable/deb/$(ARCH) /\n' \
    /etc/apt/keyrings/nvidia-container-toolkit.asc >"$FLEET_ROOT/etc/apt/sources.list.d/nvidia-container-toolkit.list"
"${apt[@]}" update
"${apt[@]}" install --no-install-recommends nvidia-container-toolkit

# `docker run --gpus` finds the toolkit by itself; compose files that say `runtime: nvidia` need it named.
python3 - "$FLEET_ROOT/etc/docker/daemon.json" <<'PYTHON'
import json, pathlib, sys

path = pathlib.Path(sys.argv[1])
settings = json.loads(path.read_text())
settings["runtimes"] = {"nvidia": {"path": "nvidia-container-runtime", "args": []}}
path.write_text(json.dumps(settings, indent=2) + "\n")
PYTHON
systemctl restart docker.service
