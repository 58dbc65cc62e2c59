# Two targets do everything: `make run` shows the main job, `make test` proves it.
# `make help` lists the rest.

GO       ?= go
FUZZTIME ?= 60s
PREFIX   ?= /usr/local

.PHONY: run
run: ## filter on 127.0.0.1:2525, mail arrives in var/mail (config.toml)
	@GO="$(GO)" packaging/build.sh blockd
# On a terminal blockd is a job of its own, so that Ctrl-C reaches blockd alone: it ends with
# 0 when its transactions are over, and so does make.
	@if [ -t 0 ]; then set -m; fi; ./blockd serve

# What everybody runs, each time. Go remembers the result of each package until something that it depends on changes, so no
# flag is here that would forbid that: a second run costs seconds. Real servers and browsers are make check's.
.PHONY: test
test: vet staticcheck ## vet, staticcheck, and what blockd does by itself: README.md's commands, each door, all transactions
	@echo "real mail servers, databases and browsers, and the race detector: make check"
	BLOCKD_TEST_PEERS=no $(GO) test -vet=off -timeout=20m $$($(GO) list ./... | grep -v /e2e/)

# What each commit passes.
.PHONY: check
check: ## the race detector where goroutines start, real mail servers, databases and browsers, an empty Debian
	@cmd/blockd/e2e/check.sh

.PHONY: build
build: ## the program, ./blockd
	$(GO) build -trimpath -o blockd ./cmd/blockd

.PHONY: dist
dist: ## what is published: static programs for all platforms, their contents, sums; into dist/
	@packaging/dist.sh dist

.PHONY: dist-check
dist-check: ## this commit built twice is the same octets
	cd packaging/tools && $(GO) vet ./packages ./image && $(GO) test ./image
	@packaging/dist-check.sh

.PHONY: packages-test
packages-test: ## the .deb installed, upgraded, removed and purged in an empty Debian, .rpm and .apk looked into (root)
	@packaging/deb-test.sh

.PHONY: licences
licences: ## cmd/blockd/licences.txt, after a dependency has changed
	cd packaging/tools && $(GO) run ./licences ../.. ./cmd/blockd >../../cmd/blockd/licences.new && mv ../../cmd/blockd/licences.new ../../cmd/blockd/licences.txt

.PHONY: install
install: ## ./blockd, its manual and systemd's units, below PREFIX (/usr/local)
	@sh packaging/install.sh "$(DESTDIR)" "$(PREFIX)"

.PHONY: vet
vet:
	$(GO) vet ./...

.PHONY: staticcheck
staticcheck:
	$(GO) tool -modfile=packaging/tools/go.mod staticcheck ./...

# The servers and clients that tests talk to. On a developer's machine a missing
# one skips its tests with a word; under CI=true it is installed, and missing is red.
.PHONY: peers
peers:
	@cmd/blockd/e2e/peers.sh

.PHONY: emptyroot
emptyroot: ## README.md's two commands in an empty Debian, as make check does (root, mmdebstrap)
	@cmd/blockd/e2e/emptyroot.sh

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (default 60s) each
	@for pkg in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "$$pkg $$target"; \
			$(GO) test -run='^$$' -fuzz="^$$target\$$" -fuzztime=$(FUZZTIME) $$pkg || exit 1; \
		done; \
	done

.PHONY: soak
soak: charttest dist-check packages-test ## the rest, before a release: long chaos, builds compared, packages, the whole suite in an empty Debian (2 hours)
	@cmd/blockd/e2e/emptyroot.sh --all
	$(GO) test -count=1 -v -timeout=60m -run='RandomSessions|Aborted|LargeMessages' ./smtpfilter/session -soak
	$(GO) test -count=1 -v -timeout=60m -run='Slow|Idle' ./smtpfilter/server -soak
	$(GO) test -count=1 -v -timeout=60m -run='Follows|Server/follows' ./sources/mirror/sqlite ./sources/mirror/mysql -soak
	$(GO) test -count=1 -v -timeout=60m -run='RandomWriters' ./sources/mirror/postgres -soak
	$(GO) test -count=1 -v -timeout=60m -run='RandomChanges|AnEmptiedEngine|ManyNodes' ./index/live/shared -soak
	BLOCKD_TEST_SOAK=1 $(GO) test -count=1 -v -timeout=60m -run='StoreFaults' ./policy
	$(GO) test -count=1 -v -timeout=60m -run='ReconfigureFlow|ReloadUnderLoad|IdleSessions|SlowClients|ControlGroup' ./cmd/blockd/e2e/program -soak -figures
	$(GO) test -count=1 -v -timeout=90m -run='ConsoleAtScale' ./cmd/blockd/e2e/console -soak -figures
	$(GO) test -count=1 -v -timeout=120m -run='OwnersHear' ./index -soak
	BLOCKD_TEST_ALL_BITS=1 $(GO) test -count=1 -v -run=EveryFlippedBit ./index

.PHONY: bench
bench: ## blockd beside its peers in one run, into docs/performance.md (2 to 5 minutes)
	cd internal/bench && $(GO) run .

.PHONY: bench-smtp
bench-smtp: ## the SMTP filter beside HAProxy, Postfix and a bare pipe, 10 M addresses (4 minutes, root)
	cd internal/bench && $(GO) run . smtp $(BENCHFLAGS)

.PHONY: bench-milter
bench-milter: ## Postfix asking blockd, rspamd and nobody, 10 M addresses (5 minutes, root)
	cd internal/bench && $(GO) run . milter $(BENCHFLAGS)

.PHONY: bench-http
bench-http: ## HTTP checks beside rspamd and a bare handler, 10 M addresses (5 minutes)
	cd internal/bench && $(GO) run . http $(BENCHFLAGS)

.PHONY: bench-dns
bench-dns: ## the DNS door beside rbldnsd, 10 M domains, by dnsperf (5 minutes)
	cd internal/bench && $(GO) run . dns $(BENCHFLAGS)

.PHONY: bench-resp
bench-resp: ## the RESP door beside redis-server, 10 M members, by redis-benchmark (5 minutes)
	cd internal/bench && $(GO) run . resp $(BENCHFLAGS)

.PHONY: bench-start
bench-start: ## serve until the first answer, cold and warm, with 10 M entries and with 200,000 live ones (3 minutes)
	cd internal/bench && $(GO) run . start $(BENCHFLAGS)

.PHONY: bench-upgrade
bench-upgrade: ## what clients feel while another process takes over, by probes each millisecond (4 minutes)
	cd internal/bench && $(GO) run . upgrade $(BENCHFLAGS)

.PHONY: bench-reload
bench-reload: ## what clients feel of a list of 10 M that changes, by probes each millisecond (5 minutes)
	cd internal/bench && $(GO) run . reload $(BENCHFLAGS)

.PHONY: bench-owners
bench-owners: ## a million owners with 20 entries each: build, memory, changes, 200,000 of them by HTTP (3 minutes)
	cd internal/bench && $(GO) run . owners $(BENCHFLAGS)
	$(GO) test ./index ./policy -run='^$$' -bench='LookupOwned|Owners' -cpu=1

.PHONY: bench-fleet
bench-fleet: ## a fleet's list of 10 M: published first and with 0.1 % changed, what a node fetches and when it acts; 20 nodes (10 minutes)
	cd internal/bench && $(GO) run . publish $(BENCHFLAGS) && $(GO) run . nodes

.PHONY: bench-growth
bench-growth: ## curves from 10,000 to 100 M entries, one to 10,000 connections, on one processor and two (20 minutes)
	cd internal/bench && $(GO) run . growth $(BENCHFLAGS)

.PHONY: benchtest
benchtest: ## the tests of internal/bench, a module of its own
	cd internal/bench && $(GO) vet ./... && $(GO) tool -modfile=../../packaging/tools/go.mod staticcheck ./... && $(GO) test ./...

.PHONY: charttest
charttest: ## the Helm chart and compose files against Kubernetes' and Compose's types, a module of its own
	cd packaging/helm/test && $(GO) vet ./... && $(GO) tool -modfile=../../tools/go.mod staticcheck ./... && $(GO) test -count=1 ./... # what it reads is outside the module, which the cache of tests does not see

.PHONY: benchmarks
benchmarks: ## Go's own benchmarks of the hot path
	$(GO) test -run='^$$' -bench=. -benchmem ./mail/addr ./bloom ./index ./lists

.PHONY: fleetplot
fleetplot: ## the plot of docs/fleet.md: how many nodes a bad sequence reaches
	cd internal/bench && $(GO) run . fleet

.PHONY: filtersizes
filtersizes: ## the plot of docs/filters.md: how large filters are, and how often they are wrong
	cd internal/bench && $(GO) run . sizes

.PHONY: figures
figures: ## the corpus, and compile, size, memory and reloads of a million real names
	$(GO) test -count=1 -v -run='Corpus|Reload|Compile' ./cmd/blockd/e2e/servers ./cmd/blockd/e2e/program -figures

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1\t/' | expand -t 14
