#!/usr/bin/env bash
# Installs the .deb in an empty Debian, upgrades, removes and purges it, and looks into the .rpm and .apk:
#
#     packaging/deb-test.sh [DIST]     dist/ has been made by packaging/dist.sh DIST linux/amd64; without DIST it is made
#
# Needs root and mmdebstrap; lintian, rpm and iproute2 where they are there. Under CI=true what is missing is installed. No systemd
# runs in the root: what is seen of units is that they are enabled, and that they go. The service is started by hand.
set -euo pipefail
cd "$(dirname "$0")/.."

missing() {
	echo "deb-test: $*" >&2
	[ "${CI:-}" = true ] && exit 1
	exit 0
}
die() {
	echo "deb-test: $*" >&2
	exit 1
}
say() { echo "deb-test: $* (${SECONDS}s)"; }

[ "$(id -u)" = 0 ] || missing "chroot wants root; skipped"
. /etc/os-release
[ "${ID:-}" = debian ] || missing "this machine is no Debian, whose packages make the root; skipped"
for package in mmdebstrap lintian rpm iproute2; do
	command -v "${package/iproute2/ip}" >/dev/null && continue
	[ "${CI:-}" = true ] || missing "$package is not installed; skipped"
	apt-get -qq update
	DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$package" >/dev/null
done

work=$(mktemp -d "${TMPDIR:-/tmp}/blockd-deb.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
chmod 755 "$work"
dist=${1-}
if [ -z "$dist" ]; then
	dist=$work/dist
	packaging/dist.sh "$dist" linux/amd64
fi
one() { # one PATTERN prints the single file of that name
	local found
	found=$(find "$dist" -maxdepth 1 -name "$1")
	[ "$(wc -l <<<"$found")" = 1 ] && [ -n "$found" ] || die "$dist has not one $1: $found"
	echo "$found"
}
deb=$(one 'blockd_*_amd64.deb') rpm=$(one 'blockd-*.x86_64.rpm') apk=$(one 'blockd_*_x86_64.apk')

lintian --allow-root --fail-on error "$deb" || die "lintian finds errors"
say "lintian finds no errors; the .deb has $(stat -c %s "$deb") octets"

# What every package has, and what only some have.
everywhere="usr/bin/blockd etc/blockd/config.toml etc/blockd/lists/senders.txt usr/share/man/man8/blockd.8.gz usr/share/man/man5/blockd.toml.5.gz
	usr/share/bash-completion/completions/blockd usr/share/fish/vendor_completions.d/blockd.fish"
has() { # has FORMAT LIST FILE...
	local format=$1 list=$2 file
	shift 2
	for file; do
		grep -qx "$file" <<<"$list" || die "the .$format has no $file"
	done
}
# shellcheck disable=SC2086
{
	has rpm "$(rpm -qpl "$rpm" 2>/dev/null | sed 's,^/,,')" $everywhere usr/lib/systemd/system/blockd.service usr/lib/sysusers.d/blockd.conf usr/share/zsh/site-functions/_blockd
	has apk "$(tar -tzf "$apk" 2>/dev/null)" $everywhere etc/init.d/blockd usr/share/zsh/site-functions/_blockd
	has deb "$(dpkg-deb --fsys-tarfile "$deb" | tar -t | sed 's,^\./,,')" $everywhere lib/systemd/system/blockd.service usr/share/doc/blockd/copyright
}
[ "$(rpm -qp --configfiles "$rpm" 2>/dev/null | sort | xargs)" = "/etc/blockd/config.toml /etc/blockd/lists/senders.txt" ] || die "the .rpm has other configuration files"
say "the .rpm and .apk have what belongs in them"

root=$work/root
sources=/etc/apt/sources.list
[ -e /etc/apt/sources.list.d/debian.sources ] && sources=/etc/apt/sources.list.d/debian.sources
apt-config dump | grep '^Acquire::' >"$work/apt.conf" || true
mmdebstrap --quiet --variant=minbase --aptopt="$work/apt.conf" --dpkgopt=force-unsafe-io --include=systemd-standalone-sysusers "$VERSION_CODENAME" "$root" - <"$sources"
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"; }
# What dpkg keeps for itself, logs, and the copies that programs for users make, are nobody's leftovers.
files() { (cd "$root" && find . -xdev \( -path ./proc -o -path ./var/lib/dpkg -o -path ./var/log -o -path ./var/cache -o -path ./tmp \) -prune -o -print) | grep -vE '^\./etc/((passwd|group|g?shadow|subuid|subgid)-|\.pwd\.lock)$' | sort; }
users() { inside getent passwd && inside getent group; }
files >"$work/before"
users >"$work/users-before"
say "an empty Debian stands"

cp "$deb" "$root/tmp/first.deb"
inside dpkg -i /tmp/first.deb
inside blockd config --check -c /etc/blockd/config.toml
inside blockd version | head -n 1
inside getent passwd blockd | grep -q ':/var/lib/blockd:' || die "there is no user blockd"
inside getent group blockd >/dev/null || die "there is no group blockd"
for unit in multi-user.target.wants/blockd.service sockets.target.wants/blockd-milter.socket sockets.target.wants/blockd-policy.socket; do
	[ -L "$root/etc/systemd/system/$unit" ] || die "$unit is not enabled"
done
[ ! -e "$root/etc/systemd/system/sockets.target.wants/blockd.socket" ] || die "blockd.socket is enabled: port 25 is the mail server's"
say "installed; the configuration is right, its units are enabled"

# The first minute, by nothing but the package: another configuration, what the mail server needs, and back.
inside blockd init --server postfix --way milter --list ipsum-4 --doctor=false >"$work/init"
grep -qxF '    smtpd_milters = unix:/blockd/milter' "$work/init" || die "init does not print the line for Postfix"
grep -qxF '    systemctl disable --now blockd-policy.socket' "$work/init" || die "init does not say which unit is to go"
inside blockd config --check -c /etc/blockd/config.toml
inside blockd init --undo
cmp packaging/config.toml "$root/etc/blockd/config.toml" || die "init --undo has not brought the package's configuration back"
# And the service as its user, in a network of its own, on a list that grows meanwhile.
install -d -o "$(inside id -u blockd)" -g "$(inside id -g blockd)" "$root/var/lib/blockd"
cat >"$root/tmp/day" <<'DAY'
set -eu
cd /
install -d -o blockd /var/spool/postfix/blockd # as the socket units make it
setpriv --reuid=blockd --regid=blockd --clear-groups blockd serve -c /etc/blockd/config.toml 2>/tmp/serve.log &
trap 'kill $!; wait $! || true; rm -f /tmp/serve.log' EXIT
timeout 60 sh -c 'until blockd health >/dev/null 2>&1; do sleep 0.1; done' || { cat /tmp/serve.log; exit 1; }
[ -S /var/spool/postfix/blockd/milter ] && [ -S /var/spool/postfix/blockd/policy ]
blockd check someone@bulk.example && exit 1
echo someone@bulk.example >>/etc/blockd/lists/senders.txt
timeout 60 sh -c 'until blockd check someone@bulk.example; do sleep 0.1; done'
sed -i '$d' /etc/blockd/lists/senders.txt
DAY
unshare --net -- sh -c 'ip link set lo up && exec chroot "$0" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin sh /tmp/day' "$root" || die "the service does not serve"
rm "$root/tmp/day"
say "init and its undo; the service serves, and a line more in its list acts"

# A later version whose configuration has a line more.
dpkg-deb -R "$deb" "$work/later"
later=$(dpkg-deb -f "$deb" Version)+later
sed -i "s/^Version: .*/Version: $later/" "$work/later/DEBIAN/control"
echo "# later" | tee -a "$work/later/etc/blockd/config.toml" >>"$work/later/etc/blockd/lists/senders.txt"
(cd "$work/later" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
dpkg-deb -Znone --root-owner-group -b "$work/later" "$root/tmp/later.deb" >/dev/null

echo "# mine" >>"$root/etc/blockd/config.toml"
inside dpkg --force-confdef --force-confold -i /tmp/later.deb
[ "$(inside dpkg-query -f '${Version}' -W blockd)" = "$later" ] || die "the later version is not installed"
tail -n 1 "$root/etc/blockd/config.toml" | grep -qx "# mine" || die "the upgrade has changed a changed config.toml"
tail -n 1 "$root/etc/blockd/lists/senders.txt" | grep -qx "# later" || die "the upgrade has not brought the later senders.txt"
inside blockd config --check -c /etc/blockd/config.toml
say "upgraded: the changed config.toml is kept"

mkdir -p "$root/var/lib/blockd" "$root/run/blockd" # as a start makes them
echo "someone@bulk.example" >"$root/etc/blockd/lists/mine.txt"
inside dpkg --remove blockd
[ ! -e "$root/usr/bin/blockd" ] || die "the program is left after remove"
tail -n 1 "$root/etc/blockd/config.toml" | grep -qx "# mine" || die "remove has taken config.toml"
[ -e "$root/etc/blockd/lists/mine.txt" ] && [ -d "$root/var/lib/blockd" ] || die "remove has taken a list or the state"
say "removed: configuration, lists and state are kept"

inside dpkg --purge blockd
files >"$work/after"
users >"$work/users-after"
diff -u "$work/before" "$work/after" || die "purge leaves these"
diff -u "$work/users-before" "$work/users-after" || die "purge leaves a user"
say "purged: nothing is left"
