#!/bin/sh
# Prints the version of this checkout. A tag v1.2.3 on the commit is "1.2.3". Between tags it is the version that
# CHANGELOG.md announces as the next one ("## 1.2.3, unreleased"), with the commit's date and hash: a package manager
# sorts it before the release ("1.2.3~20270131.g1a2b3c4"). Changed files add ".dirty".
set -eu
cd "$(dirname "$0")/.."

dirty=
[ -z "$(git status --porcelain --untracked-files=no)" ] || dirty=.dirty
tag=$(git describe --tags --exact-match --match 'v[0-9]*' 2>/dev/null || true)
if [ -n "$tag" ] && [ -z "$dirty" ]; then
	echo "${tag#v}"
	exit
fi
next=$(sed -n 's/^## \([0-9][0-9.]*\).*unreleased.*/\1/p' CHANGELOG.md | head -n 1)
day=$(TZ=UTC git log -1 --date=format-local:%Y%m%d --format=%cd)
echo "${next:-0.0.0}~$day.g$(git rev-parse --short=7 HEAD)$dirty"
