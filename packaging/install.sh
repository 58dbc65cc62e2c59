#!/bin/sh
# Puts the program, its manual and systemd's units in their places, and a first
# configuration where there is none. Nothing is started. As `make install` calls it:
#
#     packaging/install.sh [DESTDIR [PREFIX]]
set -eu

dest=${1-}
prefix=${2:-/usr/local}
cd "$(dirname "$0")/.."

if [ ! -x blockd ]; then
	echo "install.sh: ./blockd is not there; run: make build" >&2
	exit 1
fi

# The service runs as another user: all of it is for everybody to read.
umask 022
put() { # put MODE FILE FOLDER
	mkdir -p "$dest$3"
	install -m "$1" "$2" "$dest$3/"
	echo "$3/$(basename "$2")"
}

put 755 blockd "$prefix/bin"
put 644 docs/man/blockd.8 "$prefix/share/man/man8"
put 644 docs/man/blockd.toml.5 "$prefix/share/man/man5"
for unit in packaging/systemd/*; do
	put 644 "$unit" "$prefix/lib/systemd/system"
	sed -i "s,/usr/bin/blockd,$prefix/bin/blockd," "$dest$prefix/lib/systemd/system/$(basename "$unit")"
done

mkdir -p "$dest$prefix/lib/sysusers.d" "$dest$prefix/lib/tmpfiles.d"
for kind in sysusers tmpfiles; do
	install -m 644 "packaging/package/$kind.conf" "$dest$prefix/lib/$kind.d/blockd.conf"
	echo "$prefix/lib/$kind.d/blockd.conf"
done

if [ -e "$dest/etc/blockd/config.toml" ]; then
	echo "/etc/blockd/config.toml is there, and stays as it is"
else
	put 644 packaging/config.toml /etc/blockd
	if [ ! -e "$dest/etc/blockd/lists/senders.txt" ]; then
		put 644 packaging/senders.txt /etc/blockd/lists
	fi
fi

if [ -z "$dest" ] && [ -d /run/systemd/system ]; then
	systemd-sysusers "$prefix/lib/sysusers.d/blockd.conf"
	systemd-tmpfiles --create "$prefix/lib/tmpfiles.d/blockd.conf"
	systemctl daemon-reload
fi
echo "the first start makes a token for the console, http://127.0.0.1:8025/: sudo cat /var/lib/blockd/blockd.bdx.token"
echo "next: blockd config --check -c /etc/blockd/config.toml, and systemctl enable --now blockd-milter.socket blockd-policy.socket blockd"
