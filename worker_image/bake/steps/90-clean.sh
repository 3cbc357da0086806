#!/usr/bin/env bash
# What must not be in two machines, or in any image: identities, keys, logs. Last, since the steps before it write some.
set -euo pipefail

apt-get -qq clean
rm -rf "$FLEET_ROOT"/var/lib/apt/lists/*

# A clean stop, so that the engine's own identity isn't written again after it is removed.
systemctl stop docker.service docker.socket containerd.service
rm -f "$FLEET_ROOT/etc/docker/key.json" "$FLEET_ROOT/var/lib/docker/engine-id"

# The next boot is a first boot: new host keys, new machine id, its own user data.
cloud-init clean --logs --machine-id
rm -f "$FLEET_ROOT"/etc/ssh/ssh_host_*
rm -rf "$FLEET_ROOT"/root/.ssh "$FLEET_ROOT"/home/*/.ssh
rm -f "$FLEET_ROOT"/root/.bash_history "$FLEET_ROOT"/home/*/.bash_history
rm -rf "$FLEET_ROOT"/root/.docker "$FLEET_ROOT"/root/.cache
rm -rf "$FLEET_ROOT"/var/log/journal/*
find "$FLEET_ROOT/var/log" -type f -exec truncate --size 0 {} + 2>/dev/null || true # under another root there may be none
sync
