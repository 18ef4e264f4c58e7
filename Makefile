# One verb for each thing a developer or CI does. `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

BIN := .venv/bin
# -qq: only errors. What pip warns of (a user's own pip.conf, running as root) is nothing that a set-up has to mend.
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check --no-input
INSTALL := $(PIP) install --no-deps

# The first Python from 3.11 to 3.12 that can make a virtual environment. Newer ones have no wheel of the embedded Triton.
# Each is run, not only found: a version manager's shim may stand for a Python that is not there.
PYTHON ?= $(firstword $(foreach python,python3.11 python3.12 python3,$(if $(shell $(python) -c '$(PYTHON_FITS)' 2>/dev/null),$(python))))
PYTHON_FITS := import sys, venv, ensurepip; sys.version_info[:2] in ((3, 11), (3, 12)) and print("yes")

# dev is what make setup installs; the others are what the Dockerfile builds with and puts into each of its images.
LOCKS := dev worker demo flower build
COMPILE := UV_PYTHON_DOWNLOADS=never $(BIN)/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
COMPILE_dev := pyproject.toml --extra demo --extra flower --extra otel --group dev
COMPILE_worker := pyproject.toml --extra otel
COMPILE_demo := pyproject.toml --extra demo --extra otel
COMPILE_flower := pyproject.toml --extra flower --extra otel
COMPILE_build := --group build

.PHONY: help
help: ## List what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: .venv/.project-installed ## Make .venv with all that the demo and the tests need (re-run only when the lock changes)
	@:

$(BIN)/pip:
	@python='$(PYTHON)'
	if [ -z "$$python" ]; then
	  echo "setup: no Python 3.11 or 3.12 with venv and ensurepip was found; install one (on Debian: python3.11 and python3.11-venv) or name it: make setup PYTHON=/path/to/python3.11" >&2
	  exit 1
	fi
	if [ "$$("$$python" -c '$(PYTHON_FITS)' 2>/dev/null)" != yes ]; then
	  echo "setup: $$python is no Python 3.11 or 3.12 with venv and ensurepip; name another: make setup PYTHON=/path/to/python3.11" >&2
	  exit 1
	fi
	echo "setup: making .venv with $$("$$python" --version)"
	"$$python" -m venv --clear .venv

.venv/.lock-installed: requirements/dev.txt | $(BIN)/pip
	@echo "setup: installing the locked packages (about 30 s the first time)"
	$(INSTALL) --require-hashes -r $<
	touch $@

.venv/.project-installed: pyproject.toml .venv/.lock-installed
	@$(INSTALL) --no-build-isolation --editable .
	touch $@
	echo "setup: done"

.PHONY: demo
demo: setup ## Run real prompts through a real queue, a real Triton and a real small model
	@$(BIN)/speedinfer demo

# Most of what the tests take is waiting, so more of them run beside each other than there are cores; each process has servers
# of its own.
TESTERS ?= 3
.PHONY: test
test: setup ## Run the unit, integration and acceptance tests (minutes)
	@$(BIN)/python -m pytest -m "not long" -n $(TESTERS) --dist loadfile tests/unit tests/integration tests/acceptance

.PHONY: test-long
test-long: setup ## Run the outages and soaks that take longer
	@$(BIN)/python -m pytest -m long tests

.PHONY: bench
bench: setup ## Measure the worker beside a direct loop, stock Celery and other queues, and write docs/benchmarks.md (about an hour)
	@$(BIN)/python -m benchmarks $(BENCH)

.PHONY: scale
scale: setup ## Measure how it grows with queues, models and workers, and what Redis keeps; print tables (SCALE="--soak-minutes 60" soaks too)
	@$(BIN)/python -m benchmarks.scale $(SCALE)

# A seed draws the load and the faults; what is printed says how to have the same ones again.
SEED ?= 1
CHAOS ?= --seconds 90 --every 3
.PHONY: chaos
chaos: setup ## Run jobs under faults and judge what became of them, under 3 minutes (SEED=7 draws other faults)
	@$(BIN)/python -m tests.chaos --seed $(SEED) $(CHAOS)

.PHONY: chaos-long
chaos-long: SEED = 34
chaos-long: setup ## Run 10,000 jobs under faults and judge what became of them, under 10 minutes (SEED=7 draws other faults)
	@$(BIN)/python -m tests.chaos --seed $(SEED) --seconds 330 --jobs 10000 --every 12 --most-reruns 0.05

.PHONY: check
check: check-code check-locks ## Lint, formatting, types, import rules, locks

.PHONY: check-code
check-code: setup
	@$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet . || { echo "check: not formatted; run make fmt" >&2; exit 1; }
	$(BIN)/mypy --no-error-summary
	rules=$$($(BIN)/lint-imports 2>&1) || { echo "$$rules" >&2; exit 1; }
	echo "check: lint, formatting, types and import rules are clean"

# Compiled over a copy of what is there, so that pins stay and only a changed pyproject.toml shows.
.PHONY: check-locks
check-locks: setup
	@scratch=$$(mktemp -d)
	trap 'rm -rf "$$scratch"' EXIT
	cp requirements/*.txt "$$scratch"
	$(foreach lock,$(LOCKS),$(COMPILE) $(COMPILE_$(lock)) -o "$$scratch/$(lock).txt" >/dev/null;)
	diff -ru requirements "$$scratch" || { echo "check: requirements/ does not fit pyproject.toml; run make lock" >&2; exit 1; }
	echo "check: the locks fit pyproject.toml"

.PHONY: fmt
fmt: setup ## Format the code and mend what ruff can mend
	@$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format --quiet .

.PHONY: lock
lock: setup ## Compile pyproject.toml's dependencies into requirements/, keeping the pins that still fit
	@$(foreach lock,$(LOCKS),$(COMPILE) $(COMPILE_$(lock)) -o requirements/$(lock).txt >/dev/null;)

.PHONY: clean
clean: ## Remove .venv and every cache
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
