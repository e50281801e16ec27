# Every target works as the first command on a fresh machine: the virtual environment is made on demand.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup demo test lint format bench cases clean

help:
	@echo "make demo    install, then watch a real training turn NaN and be explained"
	@echo "make test    install, then run the test suite"
	@echo "make lint    ruff and mypy"
	@echo "make bench   cost of watching, as ratios to the same loop without it"
	@echo "make cases   run the debugger on all faulty trainings and their twins, and compare with plain runs"

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

demo: $(STAMP)
	$(BIN)/python examples/demo.py

test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)
	$(BIN)/python -m benchmarks

cases: $(STAMP)
	$(BIN)/python tests/cases/judge.py --command "$(abspath $(BIN)/python) -m unstuck run"
	UNSTUCK_ALL_CASES=1 $(BIN)/python -m pytest -n 2 tests/test_cases.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info
