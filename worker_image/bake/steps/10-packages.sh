#!/usr/bin/env bash
# What Ubuntu's own archive has: fewer keys to trust, and its security team keeps them current.
set -euo pipefail

# A fresh instance runs apt by itself for a few minutes: wait for its lock instead of failing at it.
apt=(apt-get -qq -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 -o Acquire::Retries=5)
"${apt[@]}" update
"${apt[@]}" -o Dpkg::Options::=--force-confold dist-upgrade
packages=(
    ca-certificates curl
    git             # job environments with requirements of git repositories, and evals that clone
    python3-venv    # brings pip, which brings uv
    build-essential # packages of a job environment that have no wheel for this machine
    pciutils        # lspci, for a person who looks why a GPU isn't seen
)
"${apt[@]}" install --no-install-recommends "${packages[@]}"
