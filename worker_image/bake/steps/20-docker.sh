#!/usr/bin/env bash
# The engine and its compose plugin, with the address pool that a fleet worker needs. Ubuntu 24.04's own packages are newer than
# what Inspect's sandbox asks for (24.0.6 and 2.21), which the canary checks.
set -euo pipefail

apt-get -qq -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 install --no-install-recommends \
    docker.io docker-compose-v2 docker-buildx iptables

install -D -m 0644 "$FLEET_BUNDLE/files/daemon.json" "$FLEET_ROOT/etc/docker/daemon.json"

systemctl enable docker.service containerd.service
# With the file in place: the address pool counts from an engine's start, and images that are pulled later need an engine.
systemctl restart docker.service
