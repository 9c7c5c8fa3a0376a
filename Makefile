# The developer's commands. Everything else is cargo.

.DEFAULT_GOAL := help
SHELL := /bin/sh

TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
# Programs that the tests need. scripts/ensure-tools.sh knows the package of each.
TEST_TOOLS := caddy cc curl dpkg-scanpackages etcd grpcio haproxy nghttp nginx openssl pebble php-fpm prometheus promtool python3 redis-server rpmbuild seccomp systemd-analyze
FUZZ_SECONDS ?= 30
SOAK_SECONDS ?= 600
BENCH ?=
BENCH_COUNT ?=
BENCH_LOAD ?=
CONFORMANCE ?=
# The crates with functions that mutants.toml names.
MUTANTS ?= -p weir-admin -p weir-cache -p weir-config -p weir-control -p weir-engine -p weir-filter -p weir-filters -p weir-identity -p weir-upstream -p weir-wire

.PHONY: help run test bless check bench bench-count bench-load bench-public peers fuzz soak upgrade-storm test-times test-unit-filter mutants conformance conformance-kube dist test-dist reproduce-dist docs screenshots fmt

help:          ## this list
	@sed -n 's/^\([a-z-]*\): *## /\1\t/p' $(MAKEFILE_LIST) | awk -F'\t' '{ printf "make %-16s %s\n", $$1, $$2 }'

run:           ## runs the gateway with ./weir.yaml or the embedded default
	cargo run --release --locked

test:          ## installs missing servers that the tests need, then runs every test
	@scripts/ensure-tools.sh $(TEST_TOOLS)
	python3 -B -m unittest discover -q -s bench/harness -t bench
	cargo build --locked --profile ci --workspace --bins
	cd fuzz && CARGO_TARGET_DIR='$(TARGET)/fuzz' cargo run --locked --profile smoke --no-default-features --bin smoke
	WEIR_BIN='$(TARGET)/ci/weir' cargo test --locked --profile ci --workspace --no-fail-fast

bless:         ## updates the generated documents, schemas and expected outputs
	cargo build --locked --profile ci -p weirgate --bins
	WEIR_BLESS=1 cargo test --locked --profile ci -p weir-gateway -p weir-plan -p weir-report -p weir-route -p weir-telemetry
	WEIR_BIN='$(TARGET)/ci/weir' WEIR_BLESS=1 cargo test --locked --profile ci -p weirgate document
	WEIR_BLESS=1 cargo test --locked --profile ci -p weirgate --test public
	WEIR_BLESS=1 cargo test --locked --profile ci -p weir-admin --lib fields_of_status

check:         ## everything CI checks: format, lints, tests, documents, dependencies
	cargo fmt --all -- --check
	cargo clippy --locked --profile ci --workspace --all-targets -- -D warnings
	$(MAKE) test
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --profile ci --workspace --no-deps
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check licenses bans sources; else echo 'cargo-deny is not installed: dependencies not checked'; fi

bench:         ## µs per request against nginx, HAProxy, a bare relay and installed peers; BENCH='--suite h1-64'
	bench/run.py $(BENCH)

bench-count:   ## instructions, cache misses and system calls per request, against bench/counts.md; BENCH_COUNT='--row h1-64'
	bench/count.py $(BENCH_COUNT)

bench-load:    ## requests per core-second of the load tester and of wrk; BENCH_LOAD='--rounds 15'
	bench/load.py $(BENCH_LOAD)

bench-public:  ## everything on the page Benchmarks, which it writes anew; 35 minutes; run `make peers` before
	bench/public.py

peers:         ## fetches or builds the programs that benchmarks compare with, in pinned versions, into a cache
	bench/peers.py

fuzz:          ## runs each fuzz target for FUZZ_SECONDS (30)
	@cargo fuzz --version >/dev/null 2>&1 || { echo 'Missing cargo-fuzz. Run: cargo install cargo-fuzz --locked' >&2; exit 1; }
	@for t in $$(cargo fuzz list | grep -v smoke); do echo "fuzz $$t"; mkdir -p fuzz/corpus/$$t; RUSTC_BOOTSTRAP=1 cargo fuzz run --sanitizer none $$t fuzz/corpus/$$t fuzz/seeds/$$t -- -max_total_time=$(FUZZ_SECONDS) -verbosity=0 || exit 1; done

soak:          ## injects all faults together for SOAK_SECONDS (600) and accounts for every request; reports to bench/results
	cargo build --locked --profile ci --workspace --bins
	WEIR_BIN='$(TARGET)/ci/weir' '$(TARGET)/ci/weir-soak' --seconds $(SOAK_SECONDS) --report bench/results

upgrade-storm: ## 200 upgrades under 128 short connections, with a slow exec, on one core and on two
	@scripts/ensure-tools.sh cc
	cargo build --locked --profile ci --workspace --bins
	WEIR_BIN='$(TARGET)/ci/weir' cargo test --locked --profile ci -p weirgate --test upgrade_storm -- --nocapture --test-threads 1

test-times:    ## runs the end-to-end tests and lists the 40 slowest with their seconds; TIMES='load::' for some
	cargo build --locked --profile ci -p weirgate --bins
	@# RUSTC_BOOTSTRAP lets the test binary print times; it must not reach cargo, which would build everything again.
	@e2e=$$(cargo test --locked --profile ci -p weirgate --test e2e --no-run 2>&1 | sed -n 's/.*Executable.*(\(.*\))$$/\1/p') && \
	  e2e=$$(realpath "$$e2e") && cd crates/weirgate && \
	  { RUSTC_BOOTSTRAP=1 WEIR_BIN='$(TARGET)/ci/weir' "$$e2e" -Z unstable-options --report-time $(TIMES) || true; } | \
	  sed -n 's/^test \(.*\) \.\.\. \([a-zA-Z]*\) <\(.*\)s>$$/\3 \2 \1/p' | sort -rn | head -40

test-unit-filter: ## runs every end-to-end test under the system call filter of dist/weir.service
	@scripts/ensure-tools.sh $(TEST_TOOLS)
	cargo build --locked --profile ci --workspace --bins
	scripts/unit-filter.py dist/weir.service '$(TARGET)/ci/weir' '$(TARGET)/unit-filter/weir'
	WEIR_BIN='$(TARGET)/unit-filter/weir' cargo test --locked --profile ci -p weirgate --test e2e --no-fail-fast

mutants:       ## breaks the functions named in mutants.toml one by one and lists what no unit test notices; MUTANTS="-p weir-identity -f '**/acl.rs'"
	@cargo mutants --version >/dev/null 2>&1 || { echo 'Missing cargo-mutants. Run: cargo install cargo-mutants --locked' >&2; exit 1; }
	CARGO_INCREMENTAL=1 cargo mutants --config mutants.toml --in-place --profile ci --timeout 60 --baseline skip $(MUTANTS) -- --lib

conformance:   ## runs public test suites on weir; CONFORMANCE='websocket tls'
	conformance/run.sh $(CONFORMANCE)

conformance-kube: ## weir-kube on a real kube-apiserver: the Gateway API's suite, failures, the chart; as root
	conformance/kubernetes/run.sh
	MODE=static conformance/kubernetes/run.sh
	conformance/kubernetes/trial.sh
	conformance/kubernetes/chart.sh

dist:          ## all files of a release, in target/dist/packages: tarball, deb, rpm, image … (docs/dev/release.md)
	@scripts/ensure-tools.sh cc dpkg-scanpackages objdump python3 rpmbuild xz
	scripts/dist.sh

test-dist:     ## tries target/dist/packages on a bare Debian that boots, upgrades from OLD=FOLDER; as root
	@scripts/ensure-tools.sh mmdebstrap
	scripts/dist/try.sh target/dist/packages $(OLD)

reproduce-dist: ## builds everything twice, in different folders, and compares each byte
	scripts/dist/reproduce.sh

docs:          ## the documentation as a site with search, in target/docs/html; installs mdBook into target/tools
	python3 -B scripts/docs.py

screenshots:   ## takes the pictures of the README and the guides again, with headless Chromium; three minutes
	@scripts/ensure-tools.sh chromium python3
	cargo build --locked --profile ci -p weirgate --bins
	WEIR_BIN='$(TARGET)/ci/weir' WEIR_BLESS=1 cargo test --locked --profile ci -p weirgate --test e2e screenshots

fmt:           ## formats everything
	cargo fmt --all
