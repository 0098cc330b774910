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

.PHONY: test
test: ## Runs all that a change can break, and says what ran and what was skipped.
	@infra/test.sh

.PHONY: test-all
test-all: ## Runs `make test`, and then what takes long.
	@infra/test.sh --all

# UNTIL is a time in seconds since 1970: what does not fit before it is left out, and told.
.PHONY: test-rest
test-rest: ## Runs what `make test-all` has and `make test` has not: planted bugs, many seeds, release builds, containers.
	@infra/test.sh --rest

# TOKEN=$(make --silent token)
.PHONY: token
token: ## Prints an ID token of the demo owner who has just signed in to the running stack.
	@curl -sfX POST "$$(sed -n 's/.*"base_url": "\(.*\)".*/\1/p' .local/stack.json)/_local/token" | sed 's/.*"token":"\([^"]*\)".*/\1/'

# make simulate SEEDS=10000, make simulate SEED=119 (docs/simulation.md).
.PHONY: simulate
simulate: ## Runs 2,000 seeds of the simulation, or SEEDS many, or the one that SEED says.
	@cargo build --locked --quiet --workspace --bin simulate
	target/debug/simulate $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),2000))

.PHONY: simulate-planted
simulate-planted: ## Plants bugs, and sees the simulation find each, by a seed or a kept schedule.
	tests/planted/plant.py --simulation

.PHONY: lint
lint: ## Formatting and lints.
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- --deny warnings

.PHONY: python-locks
python-locks: ## Renews the hashes of the Python packages (UPGRADE=1: their versions too).
	@infra/python-locks.sh

.PHONY: openapi
openapi: ## Writes docs/openapi.json from the code.
	cargo build --locked --quiet --workspace --bin openapi
	target/debug/openapi > docs/openapi.json.new
	mv docs/openapi.json.new docs/openapi.json

# More cases than `make test` has; SEED makes others.
.PHONY: schemathesis
schemathesis: ## Calls every route of a local stack with what the API's description allows and what it does not.
	@infra/setup.sh x402 schemathesis
	@infra/schemathesis/run.sh $(or $(EXAMPLES),100) $(if $(SEED),--seed $(SEED))

# TARGET is one of fuzz/fuzz_targets, each of them unless given; SECONDS is for each. Takes a C++ compiler.
.PHONY: fuzz
fuzz: ## Fuzzes what reads bytes of strangers: make fuzz TARGET=hosts SECONDS=600.
	@fuzz/run.sh $(or $(SECONDS),600) $(TARGET)

# SHARD is one part of as many as there are: k/n, with k from 0. What is missed stands in target/mutants.out.
.PHONY: mutants
mutants: ## Mutates a sample of shared/domain and shared/store, and says which mutants no test catches: make mutants SHARD=3/40.
	@infra/setup.sh nextest mutants
	tests/mutants.sh $(or $(SHARD),0/40)

.PHONY: bench
bench: ## Measures speed, growth, costs and starts, beside references of the same run, into docs/performance.md.
	@infra/setup.sh x402 sam
	@python3 infra/bench.py

.PHONY: bench-cold
bench-cold: ## Prints size, boot, first call and memory of every function, beside a hello-world function.
	@infra/setup.sh x402 sam
	.venv/bin/python infra/sam/bench_cold.py

.PHONY: sam-build
sam-build: ## Builds every function as SAM does, with the release profile, for x86_64.
	@infra/setup.sh sam
	infra/sam/build.sh --full

.PHONY: sam-local
sam-local: ## Serves the functions in Lambda's containers (needs Docker), over a local stack; answers on 127.0.0.1:3010.
	@infra/setup.sh x402 sam
	@infra/sam/local.sh

.PHONY: sbom
sbom: ## Writes a CycloneDX bill of materials of each deployed function into target/sbom.
	@infra/sbom.sh

.PHONY: build-arm64
build-arm64: ## Builds what a deployment ships, for arm64, and prints the sizes.
	@infra/setup.sh sam
	infra/sam/build.sh --arm64

# ENV is an environment of samconfig.toml: default, dev or prod.
.PHONY: deploy
deploy: ## Deploys to the account that the AWS credentials open: make deploy ENV=dev (docs/deploy.md).
	@infra/setup.sh sam deny
	infra/sam/deploy.sh $(or $(ENV),default)

.PHONY: clean
clean: ## Removes what was built and installed here.
	rm -rf target .aws-sam .venv .venv-schemathesis .venv-clients .venv-mcp .local fuzz/artifacts infra/local/x402/node_modules infra/local/webhooks/node_modules infra/sam/iam/node_modules tests/browser/node_modules clients/mcp/test/node_modules clients/typescript/node_modules clients/typescript/dist
