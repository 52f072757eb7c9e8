# Everything runs in .venv, which the first target that needs it makes from requirements/*.txt.

# The first of these that is Python 3.11 or newer; name another with `make PYTHON=...`.
CANDIDATES := python3.11 python3.12 python3.13 python3
PYTHON ?= $(shell for p in $(CANDIDATES); do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-input
# uv where it works, else pip.
INSTALL := $(BIN)/python inference/environments/installers.py
SIZE ?= demo
PROFILE ?= sketch
TESTS ?= tests
WORKERS ?= 2
SLOWEST ?= 10
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=$(SLOWEST)

.DEFAULT_GOAL := help
.PHONY: help setup cluster demo ui serve test test-long lint bench docs screenshots

help:
	@echo "make demo    materialize the whole lineage on the sketch profile"
	@echo "make ui      open Dagster on port 3000"
	@echo "make serve   open the studio and the API on port 8030"
	@echo "make test    run the tests (TESTS=tests/warehouse for some)"
	@echo "make test-long  run those that take long: trainings, rehearsals, guides, ten thousand streams"
	@echo "make lint    ruff, mypy, import-linter, and whether docs/tables.md is up to date"
	@echo "make bench   print the numbers of docs/benchmarks.md and write bench.json"
	@echo "make docs    write docs/tables.md from the schemas"
	@echo "make screenshots  take the pictures of README and guides, in Chromium, from the home of make demo"
	@echo "make setup   make .venv, with what the others need"
	@echo "make cluster add Ray and Postgres to .venv: for images servers and the profile cluster"

setup: .venv/dev.stamp

cluster: .venv/cluster.stamp

demo: .venv/core.stamp
	@$(BIN)/interleave run --profile $(PROFILE) --size $(SIZE)

ui: .venv/core.stamp
	@$(BIN)/interleave ui

serve: .venv/core.stamp
	@$(BIN)/interleave serve --profile $(PROFILE)

test: .venv/dev.stamp
	@$(PYTEST) -m "not long" $(TESTS)

# One more than cores: they wait for servers, daemons and Ray.
test-long: WORKERS = 3
test-long: .venv/dev.stamp
	@$(PYTEST) --tb=short -m long $(TESTS)

lint: .venv/dev.stamp
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m schemas.table_docs | diff -q - docs/tables.md || { echo "run make docs"; exit 1; }

bench: .venv/dev.stamp
	@$(BIN)/python -m bench

docs: .venv/core.stamp
	@$(BIN)/python -m schemas.table_docs > docs/tables.md

screenshots: .venv/dev.stamp
	@$(BIN)/python docs/screenshots.py

.venv/core.stamp: requirements/core.txt pyproject.toml | .venv/bin/python
	@echo "Installing $$(grep -c == requirements/core.txt) pinned packages into .venv (once, a minute or two) ..."
	@$(INSTALL) requirements/core.txt
	@$(PIP) --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q assets dagster_project inference schemas training warehouse
	@touch $@
	@echo "Ready."

.venv/cluster.stamp: requirements/cluster.txt .venv/core.stamp
	@echo "Installing $$(grep -c == requirements/cluster.txt) packages for clusters (once) ..."
	@$(INSTALL) requirements/cluster.txt
	@touch $@

.venv/dev.stamp: requirements/dev.txt .venv/cluster.stamp
	@echo "Installing $$(grep -c == requirements/dev.txt) packages for tests and lint (once) ..."
	@$(INSTALL) requirements/dev.txt
	@touch $@

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: install it, or name it with make PYTHON=/path/to/python"; exit 1; }
	@echo "Making .venv with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv .venv
	@$(PIP) $$(grep ^uv== requirements/core.txt)
