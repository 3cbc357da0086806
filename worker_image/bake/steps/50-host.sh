#!/usr/bin/env bash
# The machine itself: limits, the worker user, quiet during an eval, and an end for an instance that nothing was told.
set -euo pipefail

install -D -m 0644 "$FLEET_BUNDLE/files/sysctl.conf" "$FLEET_ROOT/etc/sysctl.d/90-inspect-fleet.conf"

# Ubuntu's images make `ubuntu` at first boot; jobs may run as it, so it is here before.
id -u ubuntu >/dev/null 2>&1 || useradd --create-home --shell /bin/bash ubuntu
usermod --append --groups docker ubuntu

# An instance lives for hours. An upgrade in the midst of an eval would hold apt's lock and may restart the engine: images are
# built anew instead.
systemctl disable apt-daily.timer apt-daily-upgrade.timer
systemctl mask apt-daily.service apt-daily-upgrade.service unattended-upgrades.service

# cloud-init runs the user data, so no unit of ours starts the worker. What is left is the instance whose user data never ran: it
# has no lifetime of its own and would run for ever.
install -D -m 0755 "$FLEET_BUNDLE/files/guard.sh" "$FLEET_ROOT/usr/local/lib/inspect-fleet/guard.sh"
for unit in inspect-fleet-guard.service inspect-fleet-guard.timer; do
    install -D -m 0644 "$FLEET_BUNDLE/files/$unit" "$FLEET_ROOT/etc/systemd/system/$unit"
done
systemctl enable inspect-fleet-guard.timer # from the next boot on: this one is the build

install -D -m 0644 "$FLEET_BUNDLE/files/survive-oom.conf" \
    "$FLEET_ROOT/etc/systemd/system/cloud-final.service.d/90-inspect-fleet.conf"
