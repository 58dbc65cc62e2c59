#!/usr/bin/env bash
# What make check is: the race detector on all packages that start goroutines. Beside it, since they wait most of the time, the
# tests with real mail servers, databases and browsers, and README.md's two commands in an empty Debian.
set -uo pipefail
cd "$(dirname "$0")/../../.."
go=${GO:-go}
packages=internal/testkit/race/packages.sh

cmd/blockd/e2e/peers.sh || exit 1

raced=$($packages) peers=$($packages --peers)
[ "$(wc -l <<<"$raced")" -ge 50 ] || { echo "check: $packages finds only: $raced" >&2; exit 1; } # 59 when this was written

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
begun=$SECONDS failed=
say() { echo "check: $* ($(((SECONDS - begun) / 60))m$(((SECONDS - begun) % 60))s)"; }

beside() {
	local failed=
	# shellcheck disable=SC2086 # no name of a package has a blank
	$go test -vet=off -timeout=25m ./cmd/blockd/e2e/... $peers || failed="$failed peers"
	say "real mail servers, databases and browsers"
	cmd/blockd/e2e/emptyroot.sh || failed="$failed emptyroot"
	say "README.md in an empty Debian"
	echo "$failed" >"$work/failed"
}
beside >"$work/beside.log" 2>&1 &

# shellcheck disable=SC2086
$go test -race -vet=off -shuffle=on -timeout=25m $raced || failed="$failed race"
say "under the race detector: what starts goroutines"
$go test -vet=off -tags purego ./bloom || failed="$failed purego"
GOARCH=arm64 CGO_ENABLED=0 $go vet ./bloom || failed="$failed arm64"
dead=$($go tool -modfile=packaging/tools/go.mod deadcode ./cmd/blockd) && [ -z "$dead" ] || { echo "no command reaches: $dead"; failed="$failed deadcode"; }
(cd internal/bench && $go vet ./... && $go test ./...) || failed="$failed bench"
say "other machines, what nobody reaches, and the benchmarks' own tests"
wait
cat "$work/beside.log"
failed+=$(cat "$work/failed" || echo " beside")
[ -z "$failed" ] || { echo "check: red:$failed" >&2; exit 1; }
say "green"
