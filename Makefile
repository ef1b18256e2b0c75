# make demo   installs into .venv and runs the digits demo       make test   installs and runs every check
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test bench clean

demo: $(VENV)/.demo
	$(BIN)/xbar-jax demo

test: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/solve.py
	$(BIN)/python benchmarks/update.py
	$(BIN)/python benchmarks/overhead.py

# One stamp per set of extras; a change of pyproject.toml or of the native sources installs again.
SOURCES := pyproject.toml $(shell find custom_calls -type f)

$(VENV)/.%: $(SOURCES) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[$*]" --config-settings=cmake.define.XBAR_STANDIN=ON
	touch $@

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python >= 3.11 is needed, got " + sys.version)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

clean:
	rm -rf $(VENV) build runs
