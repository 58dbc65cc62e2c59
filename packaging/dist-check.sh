#!/usr/bin/env bash
# Builds a commit twice, in two folders of other names with other umasks, and compares the octets.
#
#     packaging/dist-check.sh [SYSTEM/MACHINE ...]     linux/amd64 alone unless others are named
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- linux/amd64

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone -q . "$work/first"
(umask 077 && git clone -q . "$work/another one")
"$work/first/packaging/dist.sh" "$work/out1" "$@"
(umask 002 && "$work/another one/packaging/dist.sh" "$work/out2" "$@") >/dev/null
diff -u "$work/out1/SHA256SUMS" "$work/out2/SHA256SUMS"
(cd "$work/out2" && sha256sum --quiet -c SHA256SUMS)

# Static, as it says of itself, with what belongs beside it.
name=$(sed -n 's/.* \(.*linux-amd64\).tar.gz$/\1/p' "$work/out1/SHA256SUMS")
if [ -n "$name" ]; then
	tar -C "$work" -xzf "$work/out1/$name.tar.gz"
	if ldd "$work/$name/blockd" >/dev/null 2>&1; then
		echo "dist-check.sh: the program is linked dynamically" >&2
		exit 1
	fi
	"$work/$name/blockd" version
	[ "$("$work/$name/blockd" version | sed -n 's/^blockd *//p')" = "$(packaging/version.sh | sed 's/\.dirty$//')" ]
	for package in "$work"/out1/blockd_*_amd64.deb "$work"/out1/blockd-*.x86_64.rpm "$work"/out1/blockd_*_x86_64.apk "$work"/out1/blockd-*-image.tar; do
		grep -qF "  ${package##*/}" "$work/out1/SHA256SUMS"
	done
	for file in LICENSE NOTICE README.md man/blockd.8 config.toml systemd/blockd.service; do
		[ -f "$work/$name/$file" ]
	done
	grep -q '"pkg:golang/github.com/spf13/cobra@v' "$work/out1/$name.spdx.json"
fi
echo "two builds are the same octets:"
cat "$work/out1/SHA256SUMS"
