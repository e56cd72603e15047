# `make demo` and `make test` need Python 3.11+ and make; they create .venv if there is none.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test clean

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

demo: $(STAMP)
	$(BIN)/lemmaformer demo --force

# two test processes on two cores: threads of linear algebra would only get in each other's way
test: export OPENBLAS_NUM_THREADS = 1
test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 -m "not timing"
	$(BIN)/python -m pytest -m timing

clean:
	rm -rf $(VENV) build *.egg-info demo
