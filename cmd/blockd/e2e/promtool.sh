#!/usr/bin/env bash
# Fetches promtool, which checks packaging/prometheus. Debian's package is a server that
# its installation would start, so it is only unpacked. Needs no privileges, only apt's
# lists; a second run finds it and ends at once.
set -euo pipefail

cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/blockd
tool=$cache/promtool-1/promtool # as cmd/blockd/e2e/program/prometheus_test.go looks for it

[ "${1:-}" = --where ] && { echo "$tool"; exit 0; }
[ -x "$tool" ] && exit 0
command -v apt-get >/dev/null && command -v dpkg >/dev/null ||
	{ echo "e2e/promtool.sh: needs apt-get and dpkg, as Debian has them" >&2; exit 1; }

mkdir -p "$cache"
work=$(mktemp -d "$cache/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get -qq -o APT::Sandbox::User= download prometheus >/dev/null
dpkg -x prometheus_*.deb root
mkdir -p "${tool%/*}"
mv root/usr/bin/promtool "$tool"
