# make demo   installs into .venv and runs the digits demo       make test   installs and runs every check
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test bench selftest board clean

demo: $(VENV)/.demo
	$(BIN)/xbar-jax demo

test: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest $(TESTS)

bench: $(VENV)/.bench
	missed=0; for name in solve update overhead dynamics program inference; do $(BIN)/python benchmarks/$$name.py || missed=1; done; exit $$missed

# The kernels against stored values, without Python: for each instruction set of this processor, and for a 64-bit ARM
# board under emulation (apt-get install g++-aarch64-linux-gnu qemu-user).
CMAKE := $(or $(shell command -v cmake),$(BIN)/cmake)

selftest: | $(CMAKE)
	$(CMAKE) -S custom_calls -B build/selftest -DXBAR_SELFTEST=ON -DXBAR_LIBRARIES=OFF
	$(CMAKE) --build build/selftest --target xbar_selftest
	XBAR_ISA=sse2 build/selftest/xbar_selftest
	XBAR_ISA=avx2 build/selftest/xbar_selftest
	env -u XBAR_ISA build/selftest/xbar_selftest

board: | $(CMAKE)
	$(CMAKE) -S custom_calls -B build/board -DXBAR_SELFTEST=ON -DXBAR_LIBRARIES=OFF \
	  -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux-gnu.cmake
	$(CMAKE) --build build/board --target check

# One stamp per set of extras; a change of pyproject.toml or of the native sources installs again.
SOURCES := pyproject.toml $(shell find custom_calls -type f)

$(VENV)/.%: $(SOURCES) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[$*]" --config-settings=cmake.define.XBAR_STANDIN=ON
	touch $@

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python >= 3.11 is needed, got " + sys.version)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(BIN)/cmake: | $(BIN)/python
	$(BIN)/python -m pip install --quiet cmake

clean:
	rm -rf $(VENV) build runs
