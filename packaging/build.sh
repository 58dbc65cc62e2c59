#!/bin/sh
# Builds the program as make run does, and says every few seconds how far it is: the first time takes minutes.
#
#     packaging/build.sh FILE
set -eu
cd "$(dirname "$0")/.."

said=$(mktemp)
trap 'rm -f "$said"' EXIT
"${GO:-go}" build -v -o "$1" ./cmd/blockd >"$said" 2>&1 &
build=$!
trap 'kill "$build" 2>/dev/null; exit 130' INT TERM # what runs in the background does not hear Ctrl-C

begun=$(date +%s) shown=0
while kill -0 "$build" 2>/dev/null; do
	now=$(($(date +%s) - begun))
	if [ $((now - shown)) -ge 3 ]; then
		shown=$now
		fetched=$(grep -c '^go: downloading' "$said" || true) compiled=$(grep -vc '^go: ' "$said" || true)
		last=$(tail -n 1 "$said" | sed -n 's/^\(go: downloading \)\{0,1\}\([^ ]*\).*/, the last one \2/p')
		echo "building ./$1: $now s, $fetched modules fetched, $compiled packages compiled$last"
	fi
	sleep 0.2
done
code=0
wait "$build" || code=$?
# What is left beside the names of packages and modules is what is wrong.
[ "$code" = 0 ] || grep -v -x -E '[a-z0-9._-]+(/[A-Za-z0-9._~-]+)*|go: downloading .*' "$said" >&2 || true
exit "$code"
