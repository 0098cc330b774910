# Two commands are enough: `make run` starts the whole service on this machine, `make test` runs all that CI runs.
.DEFAULT_GOAL := help
SHELL := /bin/bash

.PHONY: help
help: ## Lists the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

.PHONY: setup
setup: ## Installs what the other targets need (npm and Python packages; Debian packages when run as root).
	@infra/setup.sh

.PHONY: run
run: setup ## Starts the service, its chain and its providers on loopback; answers on 127.0.0.1:3000.
	@echo "run: building (the first time takes some minutes)"
	@cargo build --locked --package purser-local --bins
	@exec target/debug/stack

.PHONY: demo
demo: ## Pays the local provider through the whole flow, against a running stack (or starts one for it).
	@infra/demo.sh

.PHONY: test
test: ## Runs everything that CI runs, and says what ran and what was skipped.
	@infra/test.sh

# make simulate SEEDS=10000, make simulate SEED=119 (docs/simulation.md).
.PHONY: simulate
simulate: ## Runs 2,000 seeds of the simulation, or SEEDS many, or the one that SEED says.
	cargo run --locked --quiet --package purser-sim -- $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),2000))

.PHONY: simulate-planted
simulate-planted: ## Plants bugs, one at a time, and sees the simulation find each, by a seed or a kept schedule.
	tests/planted/plant.py --simulation

.PHONY: lint
lint: ## Formatting and lints.
	cargo fmt --all --check
	cargo fmt --manifest-path tests/bench/references/Cargo.toml --check
	cargo clippy --locked --workspace --all-targets -- --deny warnings

.PHONY: openapi
openapi: ## Writes docs/openapi.json from the code.
	cargo run --locked --quiet --package purser-local --bin openapi > docs/openapi.json.new
	mv docs/openapi.json.new docs/openapi.json

# More cases than `make test` has; SEED makes others.
.PHONY: hostile
hostile: setup ## Calls every route of a local stack with what the API's description allows and what it does not.
	@infra/hostile/run.sh $(or $(EXAMPLES),100) $(if $(SEED),--seed $(SEED))

# TARGET is one of fuzz/fuzz_targets, each of them unless given; SECONDS is for each. Takes a C++ compiler.
.PHONY: fuzz
fuzz: ## Fuzzes what reads bytes of strangers: make fuzz TARGET=hosts SECONDS=600.
	@fuzz/run.sh $(or $(SECONDS),600) $(TARGET)

.PHONY: bench
bench: setup ## Measures speed, growth, costs and starts, beside references of the same run, into docs/performance.md.
	@python3 infra/bench.py

.PHONY: bench-cold
bench-cold: setup ## Prints size, boot, first call and memory of every function, beside a hello-world function.
	.venv/bin/python infra/sam/bench_cold.py

.PHONY: sam-build
sam-build: setup ## Builds every function as SAM does, with the release profile, for x86_64.
	infra/sam/build.sh --full

.PHONY: sam-local
sam-local: setup ## Serves the functions in Lambda's containers (needs Docker), over a local stack; answers on 127.0.0.1:3010.
	@infra/sam/local.sh

.PHONY: build-arm64
build-arm64: setup ## Builds what a deployment ships, for arm64, and prints the sizes.
	infra/sam/build.sh --arm64

# ENV is an environment of samconfig.toml: default, dev or prod.
.PHONY: deploy
deploy: setup ## Deploys to the account that the AWS credentials open: make deploy ENV=dev (docs/deploy.md).
	infra/sam/deploy.sh $(or $(ENV),default)

.PHONY: clean
clean: ## Removes what was built and installed here.
	rm -rf target .aws-sam .venv .venv-hostile .local fuzz/artifacts infra/local/x402/node_modules tests/browser/node_modules
