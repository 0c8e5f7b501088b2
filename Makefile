# Three commands: `make run`, `make test` and `make demo`. All set everything up first; set-up is cached by stamps in .venv.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests mostly wait for real processes: two workers on two cores. WORKERS=0 runs them in one process, one after the other.
WORKERS ?= 2
SHARED := -n $(WORKERS) --dist loadgroup --no-loadscope-reorder
TYPES := $(wildcard src/penstock/*/_*.pxd)
SOURCES_OF_BUILD := pyproject.toml setup.py src/penstock/base/compiled.py $(TYPES) $(TYPES:.pxd=.py)

.DEFAULT_GOAL := help
.PHONY: help run demo test test-all sim check format lint types imports docs bench clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(VENV)/.run: $(SOURCES_OF_BUILD)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Setting up (once) …" >&2
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run scripts/install-test-tools
	@scripts/install-test-tools
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev,pipelines]'
	@touch $@

run: $(VENV)/.run ## set up and start a single-node Penstock (ARGS="--port 9192" to pass options)
	@exec $(BIN)/penstock up $(ARGS)

$(VENV)/.demo: $(VENV)/.run scripts/install-java
	@scripts/install-java
	@echo "Installing Spark (once, some 450 MB) …" >&2
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install -q --disable-pip-version-check -e '.[pipelines]'
	@touch $@

demo: $(VENV)/.demo ## set up and watch a cluster and a pipeline at work (ARGS="--seconds 60" ends it by itself)
	@exec $(BIN)/penstock demo $(ARGS)

test: $(VENV)/.dev ## set up and run the tests: the fast ones and a sample of each marked suite (WORKERS=0: one after the other)
	@$(BIN)/python -m pytest -q $(SHARED) $(ARGS)

test-all: $(VENV)/.dev ## every suite in its long form
	@$(BIN)/python -m pytest -q --long $(ARGS)

sim: $(VENV)/.dev ## random runs of whole clusters in the simulator (SEEDS=200, FIRST=0)
	@$(BIN)/python -m penstock.testing.sim_seeds $(or $(SEEDS),200) --first $(or $(FIRST),0)

check: format lint types imports test ## what continuous integration runs

format: $(VENV)/.dev ## is the code formatted (mend it with: ruff format)
	@$(BIN)/ruff format --check .

lint: $(VENV)/.dev ## ruff
	@$(BIN)/ruff check .

types: $(VENV)/.dev ## mypy, strict
	@$(BIN)/mypy

imports: $(VENV)/.dev ## who may import whom
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

docs: $(VENV)/.dev ## write the generated reference pages anew
	@$(BIN)/python scripts/write_reference.py

bench: $(VENV)/.dev ## Penstock beside Apache Kafka, one table (needs a C compiler; Java and Maven for Kafka)
	@$(BIN)/python -m bench $(ARGS)

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
