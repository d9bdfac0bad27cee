# Everything here works on a fresh machine with Python 3.11 or newer. All targets but `clean` make .venv: `demo` with what
# the command needs, the others with the tools of developers too.

PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
TOOLS := $(VENV)/.tools-ready
FEDSVM_DATA ?= $(wildcard $(abspath ../shared/data))
export FEDSVM_DATA
export PYTHONDONTWRITEBYTECODE := # empty: the processes of tests compile each module once
PYTEST := $(VENV)/bin/python -m pytest --dist worksteal # three on two processors: the processes of a run wait for each other

.PHONY: demo hub test alone again versions long chaos mutants lint bench docs clean

demo: $(READY)
	$(VENV)/bin/fedsvm run quickstart

hub: $(READY)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[hub]"
	$(VENV)/bin/fedsvm hub --folder hub --demo

test: $(TOOLS)
	$(PYTEST) --numprocesses 3 -m "not alone and not long"

alone: $(TOOLS)
	$(VENV)/bin/python -m pytest -m alone

again: $(TOOLS)
	FEDSVM_CHAOS=all $(VENV)/bin/python -m pytest --last-failed --last-failed-no-failures none

versions: $(TOOLS)
	$(VENV)/bin/python -m tools.versions

long: $(TOOLS)
	$(PYTEST) --numprocesses 3 -m long --ignore tests/test_faults.py --ignore tests/test_hub_kills.py --durations=15

chaos: $(TOOLS)
	FEDSVM_CHAOS=all $(PYTEST) tests/test_faults.py tests/test_hub_kills.py --numprocesses 4 -rA --durations=10

mutants: $(TOOLS)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[mutation]"
	PATH="$(abspath $(VENV))/bin:$$PATH" $(VENV)/bin/mutmut run --max-children 2
	$(VENV)/bin/mutmut results

lint: $(TOOLS)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/python -m tools.english

bench: $(TOOLS)
	$(VENV)/bin/python -m benchmarks

docs: $(TOOLS)
	$(VENV)/bin/python -m zensical build --strict --clean

clean:
	rm -rf $(VENV) runs sweeps hub build mutants dist *.egg-info .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	@echo "Installing fedsvm and what it needs into $(VENV), which takes a minute or two; later not again."
	$(VENV)/bin/python -m pip install --disable-pip-version-check --editable .
	touch $@

$(TOOLS): $(READY)
	@echo "Installing what tests, checks and documentation need into $(VENV)."
	$(VENV)/bin/python -m pip install --disable-pip-version-check --editable ".[dev]"
	touch $@
