# Everything here works on a fresh machine with Python 3.11 or newer; all targets but `clean` make .venv.

PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
FEDSVM_DATA ?= $(wildcard $(abspath ../shared/data))
export FEDSVM_DATA

.PHONY: demo test chaos lint bench docs clean

demo: $(READY)
	$(VENV)/bin/fedsvm run quickstart

test: $(READY)
	$(VENV)/bin/python -m pytest --numprocesses 2 --dist worksteal -m "not alone"
	$(VENV)/bin/python -m pytest -m alone

chaos: $(READY)
	FEDSVM_CHAOS=all $(VENV)/bin/python -m pytest tests/test_faults.py --capture=tee-sys -rA --durations=10

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

bench: $(READY)
	$(VENV)/bin/python -m benchmarks

docs: $(READY)
	$(VENV)/bin/mkdocs build

clean:
	rm -rf $(VENV) runs sweeps build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --editable ".[dev]"
	touch $@
