# The usual commands in a fresh clone. Everything else is in `cargo xtask`.

.DEFAULT_GOAL := help
.PHONY: help demo test test-rust test-changed abuse check fuzz outbox soak cluster-faults miri arm install-check wasm lab lab-quick

XTASK = cargo run --quiet --locked --package xtask --

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/make \1\t\2/p' Makefile | expand -t 20

demo: ## show the main features on real data, step by step (under a minute after the build)
	@echo "Building weir in release mode. The first build uses about 13 minutes of processor time, divided among"
	@echo "the cores; its last step is long and prints nothing. Later builds take seconds."
	@cargo build --release --locked --package weir-cli
	@"$${CARGO_TARGET_DIR:-target}/release/weir" demo
	@echo "Run the command as $${CARGO_TARGET_DIR:-target}/release/weir;"
	@echo "cargo install --locked --path crates/weir-cli installs it."

test: ## run every check and every test of the project (minutes; the first time more)
	@$(XTASK) test

test-rust: ## run the tests of the Rust workspace alone
	@$(XTASK) test-rust

test-changed: ## run lints, and the tests of the Rust packages with changes since COMMIT=HEAD; `make test` runs all
	@$(XTASK) test-changed $(COMMIT)

abuse: ## attack a server of 256 MiB and 1,024 descriptors with hostile clients (part of `make test`)
	@cargo test --quiet --locked --package weir-cli --test abuse -- --nocapture

check: ## run the gate without the tests: format, rules, licences, lints, docs
	@$(XTASK) check

fuzz: ## run every fuzz target for an hour each; SECONDS=N for N seconds each
	@$(XTASK) fuzz $(SECONDS)

outbox: ## push 10,000 changes of Jira issues while connections are reset (minutes)
	@OUTBOX_OPERATIONS=3334 cargo test --quiet --locked --workspace --exclude fuzz --test jira -- chaos

soak: ## run 10,000 simulated histories of clusters (80 minutes on a core); SEEDS=FIRST..END for others
	@cargo test --locked --workspace --exclude fuzz --test sim_suite --no-run
	@# One process for 250 histories, because each history leaves some megabytes allocated.
	@for seeds in $(or $(SEEDS),$$(seq 0 250 9750 | while read first; do echo $$first..$$((first + 250)); done)); do \
	echo "seeds $$seeds"; \
	WEIR_SIM_SEEDS=$$seeds cargo test --quiet --locked --workspace --exclude fuzz --test sim_suite -- no_history --nocapture || exit; \
	done

cluster-faults: ## cause 200 faults in clusters of real processes (CYCLES=2000: the long form; SEED=N: others)
	@WEIR_FAULT_CYCLES=$(or $(CYCLES),200) WEIR_FAULT_SEED=$(or $(SEED),1) cargo test --locked --workspace --exclude fuzz --test faults -- faults_cause_no_lost_repeated_or_misread_writes --nocapture

miri: ## run the packages with unsafe code and the codec under Miri (an hour; a nightly toolchain)
	@$(XTASK) miri

arm: ## test the kernels for 64-bit ARM under qemu
	@$(XTASK) arm

install-check: ## run the `cargo install` of the README in the dev profile, and the command (minutes)
	@$(XTASK) install

wasm: ## build the programs of topics from source, and compare them with the modules in programs/prebuilt
	@$(XTASK) wasm

lab: ## run one experiment in full, with its report: LAB=NAME; without LAB, as lab-quick
	@cargo build --release --locked --package weir-lab --package weir-cli
	@lab="$${CARGO_TARGET_DIR:-target}/release/weir-lab"; \
	peers=$$("$$lab" peers $(LAB)) || exit; \
	if [ -n "$$peers" ]; then lab/peers/install.sh $$peers || echo "Contenders without a program are left out or fail."; fi; \
	if [ -n "$(LAB)" ]; then exec "$$lab" run "$(LAB)"; fi; \
	exec "$$lab" run all --quick

lab-quick: ## run every experiment in its quick form: ten minutes once its peers are built
	@$(MAKE) --no-print-directory lab LAB=
