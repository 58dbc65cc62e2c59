#!/usr/bin/env bash
# Says which real peers of e2e/ are missing; under CI=true installs them from
# Debian's packages, so that no test there has a reason to skip.
set -euo pipefail

# command=package, as the tests look for them (e2e/peer_test.go).
peers=(
	postfix=postfix
	smtp-source=postfix
	smtp-sink=postfix
	postmap=postfix
	rbldnsd=rbldnsd
	named-checkzone=bind9-utils
	swaks=swaks
	curl=curl
	minisign=minisign # a test of remote/
	systemd-socket-activate=systemd
	openssl=openssl
	haproxy=haproxy
	gcc=gcc # the race detector needs cgo
)

PATH=$PATH:/usr/sbin:/sbin
missing=()
for peer in "${peers[@]}"; do
	command -v "${peer%%=*}" >/dev/null || missing+=("${peer##*=}")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "${CI:-}" = true ]; then
	export DEBIAN_FRONTEND=noninteractive
	apt-get -qq update
	apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
	exit 0
fi
echo "not installed, their tests will be skipped: ${missing[*]}" >&2
echo "  hint: apt-get install ${missing[*]}" >&2
