#!/bin/sh
# Prints the packages of the tests that do less under the race detector, because they ask
# race.Skip or race.Enabled; with --names a pattern for go test -run that selects these tests.
set -eu
cd "$(dirname "$0")/../.."
files=$(grep -rl --include='*_test.go' --exclude-dir='.*' --exclude-dir=node_modules 'race\.\(Skip(t)\|Enabled\)' *)
if [ "${1:-}" = --names ]; then
	# shellcheck disable=SC2086 # no name of a file has a blank
	awk '/^func / { split($2, name, "("); current = name[1] } /race\.(Skip\(t\)|Enabled)/ && current ~ /^Test/ { print current }' $files |
		sort -u | paste -sd'|' | sed 's/.*/^(&)$/'
else
	for file in $files; do echo "./${file%/*}"; done | sort -u
fi
