#!/bin/sh
# Prints the packages in which the race detector has something to find: those that start a goroutine, in the product or in a test.
# With --peers it prints the others whose tests talk to real servers and programs. make check runs the first under the detector,
# and the second without it.
set -eu
cd "$(dirname "$0")/../../.."
files() {
	git ls-files '*.go' | grep -v -e ^internal/testkit/ -e ^internal/bench/ -e ^packaging/ -e ^cmd/blockd/e2e/
}
folders() { xargs -n1 dirname | sort -u | sed 's,^,./,'; }

raced=$(files | xargs grep -lE '^[^/"`]*\b(go (func\b|[A-Za-z_.]+\()|[A-Za-z_]+\.Go\()' | folders)
case "${1:-}" in
'') echo "$raced" ;;
--peers)
	files | grep '_test\.go$' | xargs grep -lE 'testkit\.(Find)?(Peer|Missing)\(|(postgres|mariadb|redis|slapd|oidc)server"|toxiproxy"' | folders |
		grep -vxF "$raced"
	;;
*) echo "packages.sh: $1 is none of its flags" >&2; exit 2 ;;
esac
