# make tune: a first tuned kernel, without a GPU. make test: everything that a change must pass.
# Needs Python 3.11 or newer with its venv module; all that is installed lies in .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# One more than there are cores, since tests also wait for processes; at most 9.
PYTEST_WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 1); echo $$(((n < 8 ? n : 8) + 1)))

.DEFAULT_GOAL := help
.PHONY: help tune test check lint types imports tests docs screenshots format soak clean

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

tune: $(VENV)/.base ## install the base and tune softmax on the recording that ships with it
	$(BIN)/warpdeck tune softmax --device recorded:h200

test: $(VENV)/.all ## install everything, then run every check
	@$(MAKE) --no-print-directory check

check: lint types imports tests docs ## every check, with what is installed

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/basedpyright --level error

imports:
	$(BIN)/lint-imports

tests:
	$(BIN)/python -m pytest -q -n $(PYTEST_WORKERS) --dist worksteal -m "not soak"

docs:
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

screenshots: ## draw docs/images again, from seeded runs on the recording
	$(BIN)/python docs/screenshots.py

format: ## apply the formatter and the safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

soak: $(VENV)/.all ## the long runs
	$(BIN)/python -m pytest -q -m soak --timeout 3600

clean: ## remove everything that was installed or built
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "make: no $(PYTHON); on Debian: apt-get install python3 python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "make: $(PYTHON) is $$($(PYTHON) -V 2>&1), and 3.11 or newer is needed; name another: make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "make: $(PYTHON) has no venv module; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.base: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -c constraints.txt -e .
	@touch $@

$(VENV)/.all: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -c constraints.txt -e ".[all,dev]"
	@touch $@ $(VENV)/.base
