#!/usr/bin/env bash
# Says which real peers of e2e/ are missing; under CI=true installs them from
# Debian's packages, so that no test there has a reason to skip.
set -euo pipefail

# command=package, as the tests look for them (internal/testkit/peer.go).
peers=(
	postfix=postfix
	smtp-source=postfix
	smtp-sink=postfix
	postmap=postfix
	postconf=postfix
	/usr/lib/postfix/postfix-sqlite.so=postfix-sqlite # judges of a map in a database
	/usr/lib/postfix/postfix-mysql.so=postfix-mysql
	/usr/lib/postfix/postfix-pgsql.so=postfix-pgsql
	/usr/lib/postfix/postfix-ldap.so=postfix-ldap
	rspamadm=rspamd # says what a multimap.conf means (blockd import)
	amavisd=amavisd-new # says what its tables mean for a recipient (blockd import, and lists of users in a database)
	/usr/share/doc/libdbd-sqlite3-perl=libdbd-sqlite3-perl
	rspamd=rspamd # asks lists by DNS, as do the next two, and the RESP door
	spamassassin=spamassassin
	dig=bind9-dnsutils
	rbldnsd=rbldnsd
	unbound=unbound # a resolver that sends a zone to blockd
	named-checkzone=bind9-utils
	swaks=swaks
	dkimproxy-verify=libmail-dkim-perl # a second opinion of signatures
	/usr/share/doc/libnet-ssleay-perl=libnet-ssleay-perl # swaks needs it for TLS and every login
	curl=curl
	minisign=minisign # a test of remote/
	ansible-lint=ansible-lint # judges packaging/ansible
	systemd-socket-activate=systemd
	openssl=openssl
	javac=default-jdk-headless # reads and writes Bloom filters, with Guava
	/usr/share/java/guava.jar=libguava-java
	redis-server=redis-server # filters in a live Redis, single, with TLS, Sentinel and Cluster
	slapd=slapd # lists in a directory
	slapadd=slapd
	ldapadd=ldap-utils # the example of docs/sources.md
	/usr/share/doc/python3-redis=python3-redis
	redis-cli=redis-tools
	/usr/include/hiredis/hiredis.h=libhiredis-dev
	mariadbd=mariadb-server # lists in a table, with its client mariadb
	psql=postgresql-client # the examples of docs/sources.md
	sqlite3=sqlite3
	/usr/lib/postgresql/15/bin/postgres=postgresql # lists whose truth is in a database
	pgbouncer=pgbouncer
	ip=iproute2 # clients of any address, in a network namespace
	haproxy=haproxy
	gcc=gcc # the race detector needs cgo
	saslpasswd2=sasl2-bin
	dovecot=dovecot-imapd # a user moves mail to Junk, and back
	sievec=dovecot-sieve
	chromium=chromium # the console's tests, with npm
	node=nodejs
	npm=npm
	pip3=python3-pip # for openapi-spec-validator, which Debian has not
	/usr/share/doc/libsasl2-modules=libsasl2-modules # what saslpasswd2 sets a password for
)

PATH=$PATH:/usr/sbin:/sbin
missing=()
for peer in "${peers[@]}"; do
	case $peer in /*) [ -e "${peer%%=*}" ] ;; *) command -v "${peer%%=*}" >/dev/null ;; esac || missing+=("${peer##*=}") # a folder of the checkout has the name of a program
done
servers=$("${0%/*}/servers.sh" --where)
promtool=$(command -v promtool || "${0%/*}/promtool.sh" --where)
store=$("${0%/*}/versitygw.sh" --where)
console=${0%/*}/console
clients=${0%/*}/node
openapi=${0%/*}/openapi
validator=$(python3 -c 'import openapi_spec_validator; print("there")' 2>/dev/null || true)
[ ${#missing[@]} -eq 0 ] && [ -d "$servers" ] && [ -x "$promtool" ] && [ -x "$store" ] && [ -d "$console/node_modules" ] && [ -d "$clients/node_modules" ] && [ -d "$openapi/node_modules" ] && [ -n "$validator" ] && exit 0

if [ "${CI:-}" = true ]; then
	export DEBIAN_FRONTEND=noninteractive
	apt-get -qq update
	[ ${#missing[@]} -eq 0 ] || apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "${missing[@]}" >/dev/null
	"${0%/*}/servers.sh"
	[ -x "$promtool" ] || "${0%/*}/promtool.sh"
	[ -x "$store" ] || "${0%/*}/versitygw.sh"
	[ -d "$console/node_modules" ] || npm --prefix "$console" ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
	[ -d "$clients/node_modules" ] || npm --prefix "$clients" ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
	[ -d "$openapi/node_modules" ] || npm --prefix "$openapi" ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
	go -C "$openapi/go" mod download # oapi-codegen, and what its clients import
	go -C "${0%/*}/../../../internal/testkit/toxiproxy/server" mod download
	[ -n "$validator" ] || pip3 install --quiet --break-system-packages 'openapi-spec-validator==0.9.*'
	exit 0
fi
if [ ${#missing[@]} -gt 0 ]; then
	echo "not installed, their tests will be skipped: ${missing[*]}" >&2
	echo "  hint: apt-get install ${missing[*]}" >&2
fi
if [ ! -d "$servers" ]; then
	echo "not unpacked, their tests will be skipped: Exim, Sendmail, OpenSMTPD" >&2
	echo "  hint: cmd/blockd/e2e/servers.sh (needs no privileges, installs nothing)" >&2
fi
if [ ! -x "$promtool" ]; then
	echo "not unpacked, the tests of packaging/prometheus and grafana will be skipped: promtool" >&2
	echo "  hint: cmd/blockd/e2e/promtool.sh (needs no privileges, installs nothing)" >&2
fi
if [ ! -x "$store" ]; then
	echo "not built, the test of publishing to S3 will be skipped: versitygw" >&2
	echo "  hint: cmd/blockd/e2e/versitygw.sh (needs no privileges, installs nothing)" >&2
fi
if [ ! -d "$console/node_modules" ]; then
	echo "not installed, the tests of the console will be skipped: Playwright" >&2
	echo "  hint: npm --prefix cmd/blockd/e2e/console ci (into that folder alone)" >&2
fi
if [ ! -d "$clients/node_modules" ]; then
	echo "not installed, tests of filters in a Redis and of the RESP door will be skipped: ioredis, redis" >&2
	echo "  hint: npm --prefix cmd/blockd/e2e/node ci (into that folder alone)" >&2
fi
if [ -z "$validator" ]; then
	echo "not installed, the test of the OpenAPI document will be skipped: openapi-spec-validator" >&2
	echo "  hint: pip3 install openapi-spec-validator" >&2
fi
