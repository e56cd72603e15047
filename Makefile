# Every command needs Python 3.11+ and make, and creates .venv if there is none.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
REACH := $(VENV)/.reach
# two test processes on two cores: threads of linear algebra would only get in each other's way
PYTEST := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest
QUICK := -n 2 --dist worksteal -m "not deep and not reach"

.PHONY: demo test test-all test-rest coverage lint format docs bench clean

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

# what exports, pages and the documentation site are tested with: PyTorch, ONNX, transformers, Sphinx; the browser is the system's chromium
$(REACH): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,reach]"
	touch $@

# the tour: build, certify, draw
demo: $(STAMP)
	$(BIN)/lemmaformer demo --force

# lint, types, and at least one soundness and one sabotage test of every certificate: minutes
test: lint
	$(PYTEST) $(QUICK)

# everything: all cases, hypothesis at full depth, experiments, attacks, the table of bad inputs
test-all: $(REACH)
	LEMMAFORMER_TESTS=all $(PYTEST) -n 2 --dist worksteal

# everything but what `make test` has just run as deep as it goes
test-rest: $(REACH)
	LEMMAFORMER_TESTS=rest $(PYTEST) -n 2 --dist worksteal

# what the quick tests reach, by line and branch
coverage: $(STAMP)
	$(PYTEST) $(QUICK) --cov --cov-report=term:skip-covered --cov-fail-under=90

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# the picture of the rooms, and the documentation site in build/site: no network is needed
docs: $(REACH)
	$(BIN)/python -m tests.house.rooms
	JAX_COMPILATION_CACHE_DIR=.cache/jax $(BIN)/python -m docs.site.build --out build/site

# speed, as ratios within one run
bench: $(STAMP)
	$(BIN)/python -m benchmarks.start_up
	$(BIN)/python -m benchmarks.sweep
	$(BIN)/python -m benchmarks.limits
	$(BIN)/python -m benchmarks.norms
	$(BIN)/python -m benchmarks.forward
	$(BIN)/python -m benchmarks.forms
	$(BIN)/python -m benchmarks.long_training
	@$(BIN)/python -c 'import torch' 2>/dev/null || echo 'training against PyTorch needs the extra torch: $(BIN)/pip install -e .[torch]'
	@! $(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/python -m benchmarks.training_speed

clean:
	rm -rf $(VENV) .cache build *.egg-info demo
