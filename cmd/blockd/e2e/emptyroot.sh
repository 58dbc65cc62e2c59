#!/usr/bin/env bash
# Runs README.md's two commands where nothing of this machine is: in an empty Debian with
# Go, make, git, a C compiler and curl. `make run` takes a mail as root and as another user, who runs `make test`.
# With --all it runs everything: all tests as that user, and all tests as root beside a Postfix that is
# installed and not configured. Needs root, for chroot and mounts in a namespace of its own, and
# mmdebstrap, which is installed under CI=true. Elsewhere what is missing ends it with a word.
#
# Go, the modules and what has been compiled are this machine's: what is tried is whether the
# tests find what they need. Nothing is fetched in the roots (GOPROXY=off).
set -euo pipefail
cd "$(dirname "$0")/../../.."
checkout=$PWD
all=${1:-}

packages=make,git,gcc,libc6-dev,curl
user=somebody

missing() {
	echo "empty root: $*" >&2
	[ "${CI:-}" = true ] && exit 1
	exit 0
}
say() { echo "empty root: $* ($((SECONDS / 60))m$((SECONDS % 60))s)"; }

[ "$(id -u)" = 0 ] || missing "chroot and mounts want root; skipped"
. /etc/os-release
[ "${ID:-}" = debian ] || missing "this machine is no Debian, whose packages make the root; skipped"
for package in mmdebstrap=mmdebstrap ip=iproute2; do
	command -v "${package%=*}" >/dev/null && continue
	[ "${CI:-}" = true ] || missing "${package#*=} is not installed; skipped"
	export DEBIAN_FRONTEND=noninteractive
	apt-get -qq update
	apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "${package#*=}" >/dev/null
done
unshare --mount --pid --net --fork --kill-child sh -c 'mount -t proc proc /proc && ip link set lo up' ||
	missing "no namespaces of its own are to be had here, with mounts and a loopback (a container without CAP_SYS_ADMIN?); skipped"

go mod download
[ -z "$all" ] || (cd internal/bench && go mod download)
(cd packaging/tools && go mod download)
goroot=$(go env GOROOT) modules=$(go env GOMODCACHE) compiled=$(go env GOCACHE)
checked=${STATICCHECK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/staticcheck}

work=$(mktemp -d "${TMPDIR:-/tmp}/blockd-root.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
chmod 755 "$work"

# unpack ROOT PACKAGES makes an empty Debian of this machine's version and mirrors, with a user.
unpack() {
	local sources=/etc/apt/sources.list
	[ -e /etc/apt/sources.list.d/debian.sources ] && sources=/etc/apt/sources.list.d/debian.sources
	apt-config dump | grep '^Acquire::' >"$work/apt.conf" || true
	mmdebstrap --quiet --variant=minbase --aptopt="$work/apt.conf" --dpkgopt=force-unsafe-io --include="$2" "$VERSION_CODENAME" "$1" - <"$sources"
	chroot "$1" useradd --create-home "$user"
	echo "127.0.0.1 localhost" >>"$1/etc/hosts" # the installer of Debian writes it, and the provider of sign-ins is called by it
	mkdir -p "$1$goroot" "$1$modules"
}

# clone ROOT OWNER puts the checkout and what has been compiled into the root. The checkout
# lies where it lies outside: Go compiles a package anew in another folder.
clone() {
	local home=/root
	[ "$2" = root ] || home=/home/$2
	rm -rf "$1$checkout" "$1$home/.cache"
	mkdir -p "$1$checkout" "$1$home/.cache"
	git clone -q "$checkout" "$1$checkout"
	# Links where that can be: what was made never changes. The notes of what it was made of do, and are small: without the right
	# to write them go list fails, and then staticcheck passes, for it "matched no packages".
	cp -al "$compiled" "$1$home/.cache/go-build" 2>/dev/null || cp -a "$compiled" "$1$home/.cache/go-build"
	[ "$2" = root ] ||
		(cd "$compiled" && find . -name '*-a' -print0 | tar -c --null -T -) | tar -x --unlink-first -C "$1$home/.cache/go-build"
	[ ! -d "$checked" ] || cp -a "$checked" "$1$home/.cache/staticcheck" # some 450 MB, which would take a minute or two to find anew
	chroot "$1" chown -R "$2:" "$checkout"
	chroot "$1" chown "$2:" "$home/.cache"
	chroot "$1" find "$home/.cache" '(' -type d -o -name '*-a' ')' -exec chown "$2:" {} +
	local folder
	for folder in "$checkout" "$goroot" "$modules"; do # somewhere below /root, which is closed to others
		while [ -n "$folder" ]; do
			chmod a+rx "$1$folder"
			folder=${folder%/*}
		done
	done
}

# within ROOT USER COMMAND runs a command of the shell in the checkout there. Its mounts and
# processes end with it, and its network is nothing but a loopback of its own.
within() {
	local home=/root
	[ "$2" = root ] || home=/home/$2
	unshare --mount --pid --net --fork --kill-child bash -euc '
		root=$1 user=$2 home=$3 goroot=$4 modules=$5 checkout=$6 command=$7
		ip link set lo up
		mount --make-rprivate /
		mount --bind "$goroot" "$root$goroot"
		mount --bind "$modules" "$root$modules"
		mount -o remount,bind,ro "$root$modules"
		mount --rbind /dev "$root/dev"
		mount -t proc proc "$root/proc"
		exec chroot --userspec="$user:$user" "$root" /usr/bin/env -i HOME="$home" USER="$user" \
			PATH="$goroot/bin:/usr/local/bin:/usr/bin:/bin" GOMODCACHE="$modules" GOPROXY=off GOFLAGS=-buildvcs=false GOTOOLCHAIN=local \
			bash -euc "cd \"\$0\"; $command" "$checkout"
	' - "$1" "$2" "$home" "$goroot" "$modules" "$checkout" "$3"
}

# What README.md begins with: a mail gets through, and Ctrl-C ends it.
run='
	set -m
	make run >make-run.log 2>&1 &
	printf "From: friend@there.example\r\nSubject: hello\r\n\r\nIt works.\r\n" >hello.eml
	tries=0
	until curl -s smtp://127.0.0.1:2525/there.example --mail-from friend@there.example --mail-rcpt you@here.example -T hello.eml; do
		tries=$((tries + 1))
		if [ $tries -gt 600 ] || ! jobs %1 >/dev/null 2>&1; then cat make-run.log; exit 1; fi
		sleep 0.5
	done
	if ! grep -rq "It works" var/mail/new; then cat make-run.log; exit 1; fi
	kill -INT -$!
	wait $! || true
'

empty=$work/empty postfix=$work/postfix
unpack "$empty" "$packages"
say "unpacked"

clone "$empty" root
within "$empty" root "$run"
say "make run as root: a mail got through"

clone "$empty" "$user"
within "$empty" "$user" "$run"
say "make run as $user: a mail got through"
within "$empty" "$user" 'set -o pipefail; make test 2>&1 | tee make-test.log; ! grep "matched no packages" make-test.log'
say "make test as $user: green"
[ -n "$all" ] || exit 0

within "$empty" "$user" 'go test -vet=off -timeout=60m ./...'
say "all tests as $user: green"
rm -rf --one-file-system "$empty"

# As Debian leaves it where its questions are not answered. As root, for servers start as root only.
unpack "$postfix" "$packages,postfix"
rm -f "$postfix"/etc/postfix/main.cf "$postfix"/etc/postfix/master.cf "$postfix"/etc/aliases*
clone "$postfix" root
within "$postfix" root 'go test -vet=off -timeout=60m ./...'
say "Postfix without a configuration, all tests as root: green"
