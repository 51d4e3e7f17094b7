# `make demo` and `make test` are all a newcomer needs; both install what they use into .venv.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Two pytest workers with one thread each: torch's own threads would fight over the cores.
WORKERS ?= 2

.PHONY: help install demo docs docs-serve evidence test test-nnunet lint format clean
.DEFAULT_GOAL := help

help:
	@echo "make demo     install, then train and audit a small model on generated data (CPU, minutes)"
	@echo "make test     install, lint, type-check, run every test"
	@echo "make test-nnunet   the same for the nnU-Net trainers, with nnU-Net itself"
	@echo "make docs     build the site into site/, which works from the disk; docs-serve shows it while it is written"
	@echo "make evidence   the pages of our benchmarks again, from the results in results/"
	@echo "make lint     ruff, mypy and the layers (import-linter) only"
	@echo "make format   let ruff rewrite the sources"
	@echo "make clean    remove the environment and everything generated"

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "crac needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: install
	rm -rf demo
	$(BIN)/crac demo --out demo

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	PYTHONUTF8=1 OMP_NUM_THREADS=1 $(BIN)/pytest -n $(WORKERS) --dist worksteal

# nnU-Net brings torchvision, which other libraries pick up when it is there: it gets an environment of its own.
$(VENV)-nnunet/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-nnunet
	$(VENV)-nnunet/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(VENV)-nnunet/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,nnunet]'
	touch $@

test-nnunet: $(VENV)-nnunet/.installed
	$(VENV)-nnunet/bin/pytest -n $(WORKERS) --dist loadfile tests/integrations/nnunet tests/examples/test_examples.py::test_nnunet

# The theme announces its successor on stderr unless told not to; a warning of the build itself is an error.
docs: export NO_MKDOCS_2_WARNING = 1
docs: install
	$(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

docs-serve: export NO_MKDOCS_2_WARNING = 1
docs-serve: install
	$(BIN)/mkdocs serve --strict --watch src --watch examples

evidence: install
	$(BIN)/crac benchmark --render results/methods --out build/methods --paper
	cp -r build/methods/benchmark.md build/methods/images docs
	for name in practical signed augmented tf32; do \
	    $(BIN)/crac benchmark --render results/$$name --out build/$$name && \
	    cp -r build/$$name/benchmark.md build/$$name/images docs/$$name || exit 1; \
	done

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) $(VENV)-nnunet demo site build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
