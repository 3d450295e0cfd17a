# Every command a person needs. `make` alone lists them.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
PIP     = $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench docs bench-gpu test-gpu clean

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/:/' | awk -F': *' '{printf "  make %-18s %s\n", $$1, $$2}'

setup: $(VENV)/.ready  ## create the virtual environment (.venv) with everything below

$(VENV)/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch numpy
	$(PIP) -e '.[lab,dev]'
	touch $@

demo: setup  ## compare optimizers on embedded data: about a minute, ends with a table and report.html
	$(BIN)/adax demo

test: setup  ## the test suite: core and lab, no GPU needed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal tests --ignore=tests/integrations

check: setup  ## ruff, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=src $(BIN)/lint-imports

bench: setup  ## CPU step time and memory beside torch's AdamW
	$(BIN)/python benchmarks/cpu.py
	$(BIN)/python benchmarks/lab.py

docs: setup  ## write the tables of README.md and docs/ anew from records/
	$(BIN)/python -m adaxopt.lab.report.figures
	$(BIN)/python -m adaxopt.lab.theory.claims
	$(BIN)/python -m adaxopt.lab.pages

test-gpu:  ## the GPU part of the test suite (uses the python on the PATH when there is no .venv)
	PYTHONPATH=src $$(test -x $(BIN)/python && echo $(BIN)/python || echo $(PYTHON)) -m pytest -m gpu tests

bench-gpu:  ## GPU step time and memory beside torch's fused AdamW; writes records/
	PYTHONPATH=src $$(test -x $(BIN)/python && echo $(BIN)/python || echo $(PYTHON)) benchmarks/gpu.py

clean:  ## remove the environment and caches
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
