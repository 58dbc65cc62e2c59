#!/usr/bin/env bash
# Builds versitygw, an S3 server of its own make, which stands in for the stores of providers in a test of [publish].
# Needs Go and its module proxy; a second run finds it and ends at once.
set -euo pipefail

version=v1.8.0
cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/blockd
server=$cache/versitygw-$version/versitygw # as cmd/blockd/serves3_test.go looks for it

[ "${1:-}" = --where ] && { echo "$server"; exit 0; }
[ -x "$server" ] && exit 0
cd /
GOFLAGS='' GOBIN=${server%/*} go install "github.com/versity/versitygw/cmd/versitygw@$version"
