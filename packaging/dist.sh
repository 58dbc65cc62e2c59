#!/usr/bin/env bash
# Builds what is published of a commit, as `make dist` calls it:
#
#     packaging/dist.sh [OUT [SYSTEM/MACHINE ...]]
#
# OUT (dist/) gets an archive for each platform, with the program, its manual, licences and units, a list of what is
# inside (SPDX) and SHA256SUMS, for Linux .deb, .rpm and .apk
# and an image of a container (OCI) with all its machines. With MINISIGN_KEY, the file of a secret key of minisign, the sums are signed.
# Two builds of one commit by one version of Go are the same octets, wherever they run.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$(realpath -m "${1:-dist}")
shift || true
platforms=("$@")
[ $# -gt 0 ] || platforms=(linux/amd64 linux/arm64 freebsd/amd64 darwin/arm64)

version=$(packaging/version.sh)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH CGO_ENABLED=0 GOFLAGS=-trimpath GOWORK=off LC_ALL=C TZ=UTC
umask 022
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

(cd packaging/tools && GOFLAGS= go build -o "$work/" ./packages ./image)
images=()
# The program that runs here says what shells complete, which is the same for all machines.
go build -o "$work/here" ./cmd/blockd

# package FOLDER MACHINE makes the .deb, .rpm and .apk of what is in the folder.
package() {
	local stage=$work/stage-$2 file
	mkdir -p "$stage"
	cp "$1/blockd" "$stage/"
	cp -R packaging/systemd "$stage/systemd"
	for file in blockd.8 blockd.toml.5; do
		gzip -9nc docs/man/$file >"$stage/$file.gz"
	done
	"$work/here" completion bash >"$stage/blockd.bash"
	"$work/here" completion zsh >"$stage/_blockd"
	"$work/here" completion fish >"$stage/blockd.fish"
	gzip -9nc CHANGELOG.md >"$stage/NEWS.gz"
	printf 'blockd (%s) unstable; urgency=medium\n\n  * %s\n\n -- The blockd authors <blockd@blockd.example>  %s\n' \
		"$version" "See the changes of this version in CHANGELOG.md of the sources." "$(date -Rud "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$stage/changelog.gz"
	find "$stage" -type d -exec chmod 755 {} + -o -type f -exec chmod 644 {} +
	chmod 755 "$stage/blockd"
	touch -d "@$SOURCE_DATE_EPOCH" packaging/package/*/* # nfpm takes the times of an .apk's scripts from the files
	VERSION=$version "$work/packages" packaging/nfpm.yaml "$2" "$stage" "$out"
}

for platform in "${platforms[@]}"; do
	system=${platform%/*} machine=${platform#*/}
	name=blockd-$version-$system-$machine
	mkdir -p "$work/$name"
	GOOS=$system GOARCH=$machine go build -buildvcs=true -ldflags "-s -w -X blockd/cmd/blockd/internal/version.stamped=$version" -o "$work/$name/blockd" ./cmd/blockd
	cp -R LICENSE NOTICE README.md CHANGELOG.md docs/man packaging/config.toml packaging/senders.txt "$work/$name/"
	[ "$system" != linux ] || cp -R packaging/systemd packaging/package/sysusers.conf packaging/certbot "$work/$name/"
	[ "$system" != freebsd ] || install -D packaging/freebsd/blockd "$work/$name/rc.d/blockd"
	find "$work/$name" -type d -exec chmod 755 {} + -o -type f -exec chmod 644 {} +
	chmod 755 "$work/$name/blockd"
	for script in certbot/blockd rc.d/blockd; do [ ! -e "$work/$name/$script" ] || chmod 755 "$work/$name/$script"; done
	(cd packaging/tools && GOFLAGS= go run ./sbom "$work/$name/blockd") >"$out/$name.spdx.json"
	tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=ustar -cf - "$name" | gzip -9n >"$out/$name.tar.gz"
	if [ "$system" = linux ]; then
		package "$work/$name" "$machine"
		images+=("$machine=$work/$name/blockd")
	fi
	echo "$name.tar.gz $(du -k "$out/$name.tar.gz" | cut -f1) KiB, the program $(du -k "$work/$name/blockd" | cut -f1) KiB"
done

if [ ${#images[@]} -gt 0 ]; then
	VERSION=$version REVISION=$(git rev-parse HEAD) "$work/image" "$out/blockd-$version-image.tar" "${images[@]}"
	echo "blockd-$version-image.tar $(du -k "$out/blockd-$version-image.tar" | cut -f1) KiB for ${#images[@]} machines"
fi

cd "$out"
find . -maxdepth 1 -name "blockd[-_]*" -type f -printf '%P\n' | sort | xargs sha256sum >SHA256SUMS
if [ -n "${MINISIGN_KEY-}" ]; then
	minisign -S -s "$MINISIGN_KEY" -m SHA256SUMS </dev/null
else
	echo "SHA256SUMS is not signed: MINISIGN_KEY names no key"
fi
