#!/usr/bin/env bash
# Container images that evals would pull on every instance, where the recipe names any.
set -euo pipefail

while IFS= read -r image; do
    [ -n "$image" ] || continue
    docker pull --quiet "$image"
done <<<"$FLEET_PULL"
