#!/bin/sh
# Builds the program as make run does, and says every few seconds how far it is: the first time takes minutes.
#
#     packaging/build.sh FILE
set -eu
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/said"
(
	code=0
	"${GO:-go}" build -v -o "$1" ./cmd/blockd >"$work/said" 2>&1 || code=$?
	echo "$code" >"$work/code"
) &
begun=$(date +%s) shown=0
while [ ! -s "$work/code" ]; do
	sleep 0.2
	now=$(($(date +%s) - begun))
	if [ ! -s "$work/code" ] && [ $((now - shown)) -ge 3 ]; then
		shown=$now
		fetched=$(grep -c '^go: downloading' "$work/said" || true) compiled=$(grep -vc '^go: ' "$work/said" || true)
		echo "building ./$1: ${now} s, $fetched modules fetched, $compiled packages compiled$(tail -n 1 "$work/said" | sed -n 's/^\(go: downloading \)\{0,1\}\([^ ]*\).*/, the last one \2/p')"
	fi
done
wait
code=$(cat "$work/code")
[ "$code" = 0 ] || grep -v -x -E '[a-z0-9._-]+(/[A-Za-z0-9._~-]+)*|go: downloading .*' "$work/said" >&2 || true
exit "$code"
