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
	saslpasswd2=sasl2-bin
	/usr/share/doc/libsasl2-modules=libsasl2-modules # what saslpasswd2 sets a password for
)

PATH=$PATH:/usr/sbin:/sbin
missing=()
for peer in "${peers[@]}"; do
	[ -e "${peer%%=*}" ] || command -v "${peer%%=*}" >/dev/null || missing+=("${peer##*=}")
done
servers=$("${0%/*}/servers.sh" --where)
[ ${#missing[@]} -eq 0 ] && [ -d "$servers" ] && exit 0

if [ "${CI:-}" = true ]; then
	export DEBIAN_FRONTEND=noninteractive
	apt-get -qq update
	[ ${#missing[@]} -eq 0 ] || apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
	"${0%/*}/servers.sh"
	exit 0
fi
if [ ${#missing[@]} -gt 0 ]; then
	echo "not installed, their tests will be skipped: ${missing[*]}" >&2
	echo "  hint: apt-get install ${missing[*]}" >&2
fi
if [ ! -d "$servers" ]; then
	echo "not unpacked, their tests will be skipped: Exim, Sendmail, OpenSMTPD" >&2
	echo "  hint: e2e/servers.sh (needs no privileges, installs nothing)" >&2
fi
