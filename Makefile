# Two commands are enough: `make run` starts the whole service on this machine, `make test` shows what a change broke.
# Programs of the workspace are built with `--workspace`, so that all commands compile one set of dependencies.
.DEFAULT_GOAL := help
SHELL := /bin/bash

# Where the toolchain of rust-toolchain.toml has another name and can't be fetched, the default one is used. Cargo refuses
# it if it is older than Cargo.toml's `rust-version`.
ifneq ($(shell rustc --version >/dev/null 2>&1 && echo found),found)
export RUSTUP_TOOLCHAIN := stable
endif

.PHONY: help
help: ## Lists the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

.PHONY: setup
setup: ## Installs what all targets need; each target installs what it needs itself.
	@infra/setup.sh

.PHONY: run
run: ## Starts the service, its chain and its providers on loopback; answers on 127.0.0.1:3000.
	@infra/setup.sh run
	@echo "run: building (the first time takes some minutes)"
	@cargo build --locked --workspace --bin stack
	@exec target/debug/stack

.PHONY: demo
demo: ## Pays the local provider through the whole flow, against a running stack (or starts one for it).
	@infra/demo.sh

# make demo-fleet AGENTS=50 DAYS=3
.PHONY: demo-fleet
demo-fleet: ## Fills a running stack (or one that it starts and leaves running) with 1,000 agents and a month of payments.
	@infra/demo.sh demo-fleet

.PHONY: test
test: ## Runs what most changes break, within ten minutes on two idle cores, and says what ran and what was skipped.
	@infra/test.sh

.PHONY: test-all
test-all: ## Runs `make test`, and then everything else: lints, long tests, clients, planted bugs, release builds, containers.
	@infra/test.sh --all

# TOKEN=$(make --silent token)
.PHONY: token
token: ## Prints an ID token of the demo owner who has just signed in to the running stack.
	@curl -sfX POST "$$(sed -n 's/.*"base_url": "\(.*\)".*/\1/p' .local/stack.json)/_local/token" | sed 's/.*"token":"\([^"]*\)".*/\1/'

# make simulate SEEDS=10000, make simulate SEED=119 (docs/simulation.md).
.PHONY: simulate
simulate: ## Runs 2,000 seeds of the simulation, or SEEDS many, or the one that SEED says.
	@cargo build --locked --quiet --profile simulate --package purser-sim --bin simulate
	target/simulate/simulate $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),2000))

# make load SECONDS=600 RATE=50 (docs/performance.md).
.PHONY: load
load: ## Pays for an hour, 200 times a second, while everything fails in turn, and compares what is left to the unit.
	@infra/setup.sh x402
	cargo bench --locked --profile load --package purser-tests --bench load -- --seconds $(or $(SECONDS),3600) --rate $(or $(RATE),200)

.PHONY: lint
lint: ## Formatting, lints, files that use each other, each crate's budget of lines, and the proofs that documents name.
	cargo fmt --all --check
	infra/rings.py
	infra/names.py
	infra/lines.py
	tests/planted/plant.py --texts
	infra/claims.py
	cargo clippy --locked --workspace --all-targets -- --deny warnings

.PHONY: openapi
openapi: ## Writes docs/openapi.json from the code.
	cargo build --locked --quiet --workspace --bin openapi
	target/debug/openapi > docs/openapi.json.new
	mv docs/openapi.json.new docs/openapi.json

.PHONY: bench
bench: ## Measures speed, growth, costs and starts, beside references of the same run, into docs/performance.json.
	@infra/setup.sh x402 sam
	@python3 infra/bench.py

# ENV is an environment of samconfig.toml: default, dev or prod. RELEASE is a release's tag, or a folder with a release's files,
# which are deployed without a Rust toolchain: make deploy ENV=dev RELEASE=v1.0.0.
.PHONY: deploy
deploy: ## Deploys to the account that the AWS credentials open: make deploy ENV=dev (docs/deploy.md).
	@infra/sam/deploy.sh $(or $(ENV),default) $(RELEASE)
