# `make help` lists what there is. Build outputs lie in a cache outside the clone, so that a second clone is quick.
export CARGO_TARGET_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/chandlery/target
cluster := tests/cluster/cluster

.PHONY: help run build test test-cluster bench lint crds cluster-up cluster-down cluster-kubectl
help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-16s %s\n", $$1, $$2}' Makefile

run: ## Serve examples/quickstart on 127.0.0.1:8080, without Kubernetes
	cargo run --locked -p chandlery-gateway --bin chandlery -- serve --manifests examples/quickstart --data .data --listen 127.0.0.1:8080

build: ## Build the programs for release
	cargo build --locked --release --workspace --bins

test: ## Install what the tests need, then run them all, on a real Kubernetes too (as root)
	@tests/run

test-cluster: ## Only tests that need the cluster: make test-cluster ARGS=quickstart
	@$(cluster) ensure
	$(cluster) exec tests/postgres --listen 198.18.255.1 cargo test --locked --offline --workspace -- --ignored $(ARGS)

bench: ## Measure the gateway against a bare echo server, and its gate
	cargo bench --locked --workspace --bench endpoint --bench gate

lint: ## Format check and clippy
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings

crds: ## Write charts/chandlery-crds from the resource types
	cargo run --locked -p chandlery-crds --bin crdgen

cluster-up: ## Start the test cluster, or keep the one that runs
	@$(cluster) ensure

cluster-down: ## End the test cluster and remove all it left
	@$(cluster) down

cluster-kubectl: ## make cluster-kubectl ARGS="get agents.chandlery.dev -A"
	@$(cluster) kubectl $(ARGS)
