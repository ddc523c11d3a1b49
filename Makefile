# Everything a developer or a user runs. `make` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BASE_PYTHON ?= python3.11
VENV := .venv
PYTHON := $(VENV)/bin/python
NAME ?= dev
GPUS ?= 8
# Tiers of `make test`, in the order in which they run.
TIERS ?= unit golden gitops apiserver kwok node

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ---- what a new machine needs -------------------------------------------------------------------

# uv fetches and links all of the lock file in under a minute; the stamp makes the second time free.
$(VENV)/.stamp: requirements/dev.lock pyproject.toml
	@bash requirements/venv.sh $(BASE_PYTHON) $(VENV)
	@touch $@

.PHONY: venv
venv: $(VENV)/.stamp ## Make .venv from requirements/dev.lock

# ---- see it work --------------------------------------------------------------------------------

.PHONY: demo
demo: $(VENV)/.stamp ## Cluster, operator, a real model and its answer (CLUSTER=current: on your cluster)
	@$(PYTHON) -m tests.demo up

.PHONY: demo-down
demo-down: $(VENV)/.stamp ## Remove everything the demo made, except the cache
	@$(PYTHON) -m tests.demo down

.PHONY: cluster-up
cluster-up: $(VENV)/.stamp ## A cluster with a node, for development (NAME=dev GPUS=8)
	@$(PYTHON) -m tests.cluster up --tier node --name $(NAME) --gpus $(GPUS)

.PHONY: cluster-down
cluster-down: $(VENV)/.stamp ## Remove that cluster (NAME=dev)
	@$(PYTHON) -m tests.cluster down --name $(NAME)

.PHONY: images
images: $(VENV)/.stamp ## Build both images, and load them into the cluster NAME if it runs
	@$(PYTHON) -m tests.cluster images --name $(NAME)

# ---- test ---------------------------------------------------------------------------------------

.PHONY: test
test: $(VENV)/.stamp ## All tiers that this machine allows; REQUIRE_ALL=1: a tier left out is a failure
	@$(PYTHON) -m tests.run $(TIERS)

.PHONY: test-unit test-golden test-gitops test-apiserver test-kwok test-node
test-unit: $(VENV)/.stamp ## Pure and process-level tests, no cluster
	@$(PYTHON) -m tests.run unit
test-golden: $(VENV)/.stamp ## The manifests that the operator writes
	@$(PYTHON) -m tests.run golden
test-gitops: $(VENV)/.stamp ## How Argo CD and Flux judge what the operator writes
	@$(PYTHON) -m tests.run gitops
test-apiserver: $(VENV)/.stamp ## Against a real etcd, API server and controller manager
	@$(PYTHON) -m tests.run apiserver
test-kwok: $(VENV)/.stamp ## Against a real scheduler over fake nodes with many GPUs
	@$(PYTHON) -m tests.run kwok
test-node: $(VENV)/.stamp ## Against a real node that runs our containers
	@$(PYTHON) -m tests.run node

.PHONY: lint
lint: $(VENV)/.stamp ## ruff, mypy --strict, import directions
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports

# ---- generated files ----------------------------------------------------------------------------

.PHONY: crds
crds: $(VENV)/.stamp ## Write crds/, the chart's copy and docs/reference from the code
	@$(PYTHON) -m trtllm_operator.api.crd crds
	@$(PYTHON) -m trtllm_operator.api.reference docs/reference
	@$(PYTHON) -m trtllm_operator.resolve.rules docs/reference
	@$(PYTHON) -m trtllm_operator.cli.reference docs/reference
	@mkdir -p charts/trtllm-operator/files/crds
	@cp crds/*.yaml charts/trtllm-operator/files/crds/

.PHONY: dist
dist: crds ## Render dist/install.yaml from the chart
	@$(PYTHON) -m tests.render > dist/install.yaml.new
	@mv dist/install.yaml.new dist/install.yaml

.PHONY: lock
lock: $(VENV)/.stamp ## Pin the dependencies anew, with hashes
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" bash requirements/lock.sh
