#!/usr/bin/env bash
# A Docker engine for tests: engine.sh start|stop|status FOLDER
#
#   start   uses the engine that already runs if it is new enough; else starts one of its own with everything in FOLDER.
#           Makes the image fleet-examples-shell, and prints what clients need, as NAME=VALUE lines.
#   stop    ends the engine that `start` started, and nothing else.
#   status  says which engine answers; exit code 1 if none does.
#
# An engine of its own needs root and Debian 12. Debian 12's docker.io (20.10) is too old for Inspect's sandbox, so the
# packages come from Debian 13 at the machine's own mirror, unpacked in a cache folder and never installed.
set -euo pipefail

readonly ENGINE_NEEDED=24.0.6 COMPOSE_NEEDED=2.21.0 # what Inspect's sandbox asks for
readonly SUITE=trixie
readonly IMAGE=fleet-examples-shell
readonly CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/inspect-fleet/docker-engine-$SUITE

say() { printf '%s\n' "$*" >&2; }
fail() {
    say "engine.sh: $*"
    exit 1
}
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

# Whether the engine that clients find now will do.
usable() {
    local engine compose
    engine=$(docker version --format '{{.Server.Version}}' 2>/dev/null) || return 1
    compose=$(docker compose version --short 2>/dev/null) || return 1
    at_least "${engine#v}" $ENGINE_NEEDED && at_least "${compose#v}" $COMPOSE_NEEDED
}

# The address of this machine's Debian mirror and the key that signs it, from its own sources.
mirror_line() {
    local file uri key
    for file in /etc/apt/sources.list.d/*.sources; do
        [ -e "$file" ] || continue
        uri=$(awk '$1 == "URIs:" && $2 !~ /security/ {print $2; exit}' "$file")
        key=$(awk '$1 == "Signed-By:" && $2 ~ /^\// {print $2; exit}' "$file")
        [ -z "$uri" ] || break
    done
    if [ -z "${uri:-}" ] && [ -e /etc/apt/sources.list ]; then
        uri=$(sed -n 's/\[[^]]*\]//; s/^deb  *\([^ ]*\) .*/\1/p' /etc/apt/sources.list | grep -v security | head -n 1)
    fi
    [ -n "${uri:-}" ] || fail "no Debian mirror in /etc/apt"
    printf 'deb [signed-by=%s] %s %s main\n' \
        "${key:-/usr/share/keyrings/debian-archive-keyring.gpg}" "$uri" $SUITE
}

# Unpacks the engine into the cache, once.
unpack() {
    [ ! -e "$CACHE/ready" ] || return 0
    say "fetching the Docker engine of Debian $SUITE into $CACHE"
    local work=$CACHE.$$ apt
    mkdir -p "$work"/{apt/lists/partial,apt/cache/archives/partial,packages,root}
    mirror_line >"$work/apt/sources.list"
    apt=(apt-get -qq -o "Dir::Etc::sourcelist=$work/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::Lists=$work/apt/lists" -o "Dir::Cache=$work/apt/cache" -o APT::Sandbox::User=root)
    "${apt[@]}" update >&2
    (cd "$work/packages" && "${apt[@]}" download docker.io docker-cli docker-compose containerd tini >&2)
    local package
    for package in "$work"/packages/*.deb; do
        dpkg -x "$package" "$work/root"
    done
    rm -rf "$work/apt" "$work/packages"
    touch "$work/ready"
    mv -T "$work" "$CACHE" 2>/dev/null || rm -rf "$work" # another start was first
}

# An image with a shell, from this machine's static binaries: no registry is asked.
make_image() {
    ! docker image inspect $IMAGE >/dev/null 2>&1 || return 0
    need busybox bash-static
    ! ldd "$(command -v busybox)" >/dev/null 2>&1 || fail "busybox is not static here: install busybox-static"
    local root applet
    root=$(mktemp -d)
    mkdir -p "$root"/{bin,data,etc,root,tmp,usr}
    chmod 1777 "$root/tmp"
    cp "$(command -v busybox)" "$root/bin/busybox"
    for applet in $("$root/bin/busybox" --list); do
        [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
    done
    ln -sf /bin "$root/usr/bin"
    cp "$(command -v bash-static)" "$root/bin/bash"
    echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
    tar -C "$root" -c . | docker import - $IMAGE >/dev/null
    rm -rf "$root"
}

need() {
    local missing=()
    for program in "$@"; do
        command -v "$program" >/dev/null || missing+=("$program")
    done
    [ ${#missing[@]} = 0 ] || fail "missing here: ${missing[*]} (.ci/prepare installs them)"
}

# Clients of the engine in FOLDER.
point_at() {
    export DOCKER_HOST=unix://$1/docker.sock DOCKER_CONFIG=$1/config
    export PATH=$CACHE/root/usr/bin:$CACHE/root/usr/sbin:$PATH
}

start() {
    local folder=$1
    if usable; then
        say "using the Docker engine that runs already"
        make_image
        return
    fi
    [ "$(id -u)" = 0 ] || fail "no usable Docker engine runs, and only root can start one"
    [ "$(sh -c '. /etc/os-release && echo "$ID $VERSION_ID"' 2>/dev/null)" = "debian 12" ] ||
        fail "no usable Docker engine runs, and this script can start one only on Debian 12"
    [ ${#folder} -le 60 ] || fail "$folder is too long a path for the engine's sockets"
    need runc iptables
    unpack
    mkdir -p "$folder/config/cli-plugins"
    ln -sf "$CACHE/root/usr/libexec/docker/cli-plugins/docker-compose" "$folder/config/cli-plugins/docker-compose"
    point_at "$folder"
    if ! docker info >/dev/null 2>&1; then
        # Docker's default address pool ends at about thirty networks.
        setsid dockerd --data-root "$folder/data" --exec-root "$folder/exec" -H "$DOCKER_HOST" -p "$folder/pid" \
            --default-address-pool base=10.224.0.0/11,size=24 >"$folder/dockerd.log" 2>&1 </dev/null &
        local tries=0
        until docker info >/dev/null 2>&1; do
            tries=$((tries + 1))
            if [ $tries -gt 150 ] || ! kill -0 $! 2>/dev/null; then
                tail -n 20 "$folder/dockerd.log" >&2
                fail "the engine did not start"
            fi
            sleep 0.4
        done
    fi
    make_image
    printf 'DOCKER_HOST=%s\nDOCKER_CONFIG=%s\nPATH=%s\n' "$DOCKER_HOST" "$DOCKER_CONFIG" "$PATH"
}

stop() {
    local folder=$1 pid tries=0
    pid=$(cat "$folder/pid" 2>/dev/null) || return 0
    kill "$pid" 2>/dev/null || return 0
    while kill -0 "$pid" 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -le 100 ] || fail "the engine (process $pid) does not end"
        sleep 0.2
    done
    rm -rf "$folder/data" "$folder/exec" "$folder/docker.sock"
}

status() {
    [ ! -e "$1/docker.sock" ] || point_at "$1"
    if usable; then
        echo "engine $(docker version --format '{{.Server.Version}}'), compose $(docker compose version --short)"
    else
        echo "no usable engine"
        exit 1
    fi
}

case "${1:-}" in
start | stop | status)
    [ -n "${2:-}" ] || fail "say which folder: engine.sh $1 FOLDER"
    mkdir -p "$2"
    "$1" "$(cd "$2" && pwd)"
    ;;
*) fail "start, stop or status?" ;;
esac
