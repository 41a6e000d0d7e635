# Every target sets up what it needs in .venv; Python 3.11 or newer and make are enough.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip
STAMPS := .stamps
# Numbers must not depend on how many tests run at once: one thread each, two tests at a time.
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
WORKERS ?= 2

.PHONY: demo test test-slow lint format bench bench-quick clean

$(STAMPS)/venv:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "strop needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	mkdir -p $(STAMPS) && touch $@

# The package with its models and train extras, and the tools, at the versions of constraints.txt.
$(STAMPS)/install: $(STAMPS)/venv pyproject.toml constraints.txt scripts/dev-requirements.py
	$(PIP) install --quiet --disable-pip-version-check -c constraints.txt -e '.[models,train]' \
	  $$($(BIN)/python scripts/dev-requirements.py)
	touch $@

demo: $(STAMPS)/install
	$(BIN)/python scripts/random-checkpoint.py runs/demo-checkpoint \
	  --width 64 --blocks 2 --heads 4 --length 64
	$(BIN)/strop sample runs/demo-checkpoint --steps 4,64 --temperature 1.0,0.9 \
	  --precision float64,float32 -n 8 -o runs/demo
	$(BIN)/strop show runs/demo --first 1
	$(BIN)/strop precision runs/demo-checkpoint --steps 64,1024

test: $(STAMPS)/install
	$(TEST_ENV) $(BIN)/python -m pytest -n $(WORKERS) -m "not slow"

test-slow: $(STAMPS)/install
	$(TEST_ENV) $(BIN)/python -m pytest -n $(WORKERS) -m slow

lint: $(STAMPS)/install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-logo

format: $(STAMPS)/install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMPS)/install
	$(BIN)/python benchmarks/sampling.py
	$(BIN)/python benchmarks/scoring.py
	$(BIN)/python benchmarks/theory.py
	$(BIN)/python benchmarks/training.py --full

bench-quick: $(STAMPS)/install
	$(BIN)/python benchmarks/sampling.py --quick
	$(BIN)/python benchmarks/scoring.py --quick
	$(BIN)/python benchmarks/theory.py --quick
	$(BIN)/python benchmarks/training.py

clean:
	rm -rf .venv $(STAMPS) build dist .pytest_cache .ruff_cache
