PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
SOURCES = pyproject.toml CMakeLists.txt $(shell find src -type f -not -name '*.pyc' -not -name '*.so')

.PHONY: help demo test test-slow test-gpu lint core tools clean

help:
	@echo "make demo       install into $(VENV) and train the digits that ship with the package (about a minute)"
	@echo "make test       install what the tests need and run them"
	@echo "make test-slow  also run the tests that take minutes"
	@echo "make test-gpu   on a machine with a GPU, run the tests of its kernels there"
	@echo "make lint       ruff and mypy"
	@echo "make tools      Debian packages that some tests use: an ARM compiler and emulator, and ABC"
	@echo "make core       build the C core into the source tree, to run with PYTHONPATH=src"

demo: $(VENV)/.package
	$(BIN)/gatewise train digits

test: $(VENV)/.tests
	$(BIN)/python -m pytest -m "not slow"

test-slow: $(VENV)/.tests
	$(BIN)/python -m pytest

# With the Python there is, which has the GPU's PyTorch; the other tests need no GPU.
test-gpu: core
	PYTHONPATH=src $(PYTHON) -m pytest -W default -p no:cacheprovider tests/test_triton.py tests/test_captured.py

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

core:
	cmake -S . -B build/core -DCMAKE_BUILD_TYPE=Release
	cmake --build build/core

tools:
	apt-get update -qq
	apt-get install -y -qq --no-install-recommends gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user berkeley-abc

clean:
	rm -rf build $(VENV)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.package: $(SOURCES) | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check .
	@touch $@

$(VENV)/.tests: $(VENV)/.package
	$(BIN)/pip install --quiet --disable-pip-version-check ".[test]"
	@touch $@

$(VENV)/.lint: $(VENV)/.package
	$(BIN)/pip install --quiet --disable-pip-version-check ".[lint,test]"
	@touch $@
