#!/usr/bin/env bash
# Fetches the mail servers that e2e/ runs beside Postfix: Exim, Sendmail and
# OpenSMTPD. Debian's packages of mail servers exclude each other, so these are not
# installed: they and the libraries they name are unpacked into one folder, which
# the tests copy and run each server in as its root (cmd/blockd/e2e/servers/jail_test.go). Needs no
# privileges, only apt's lists; a second run finds the folder and ends at once.
set -euo pipefail

servers=(exim4-daemon-heavy sendmail-bin sendmail-cf opensmtpd)
# Exim's heavy build is the one that takes a PROXY header. Beside them: m4 writes
# sendmail.cf, and the modules of Cyrus SASL let its users log in.
helpers=(m4 libsasl2-modules)

# The folder is named by what it holds (serversRoot in cmd/blockd/e2e/servers/jail_test.go).
cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/blockd
root=$cache/servers-2

[ "${1:-}" = --where ] && { echo "$root"; exit 0; }
[ -d "$root" ] && exit 0
command -v apt-get >/dev/null && command -v dpkg >/dev/null ||
	{ echo "e2e/servers.sh: needs apt-get and dpkg, as Debian has them" >&2; exit 1; }

mkdir -p "$cache"
work=$(mktemp -d "$cache/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"

# The libraries that packages depend on, theirs, and so on. Everything else that
# they depend on (perl, cron, debconf) serves installation and is left out.
packages=("${servers[@]}" "${helpers[@]}")
level=("${packages[@]}")
while [ ${#level[@]} -gt 0 ]; do
	mapfile -t level < <(apt-cache depends --important "${level[@]}" |
		awk '/^ *\|?(Pre)?Depends: z?lib/ { print $2 }' | sort -u |
		grep -vxF -f <(printf '%s\n' "${packages[@]}"))
	packages+=("${level[@]}")
done

mkdir debs root
(cd debs && apt-get -qq -o APT::Sandbox::User= download "${packages[@]}" >/dev/null)
for deb in debs/*.deb; do dpkg -x "$deb" root; done
(cd root && rm -rf usr/share/{doc,man,info,locale,lintian,bug,perl5,zoneinfo} etc/* usr/lib/*/gconv usr/lib/*/perl*)
for server in "${servers[@]}"; do
	dpkg-deb -f debs/"${server}"_*.deb Package Version | paste -sd' ' | sed 's/Package: //; s/Version: //'
done >root/versions
chmod -R u+rwX,go+rX,go-w root
chmod -R a-s root # nobody runs these by the way they were installed
mv -T root "$root" 2>/dev/null || [ -d "$root" ] # another run may have been first
