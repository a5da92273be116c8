# make train · make test · make check · make bench: each sets up what it needs.
PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin
# What training needs; what the tests and checks need besides.
READY  := $(VENV)/.ready
STAMP  := $(VENV)/.installed
ARGS   ?= algo=ppo env=cartpole_bullet
EXTRAS := bullet,classic,panda,tune
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help setup train test check format bench clean

help:
	@echo "make train        set up, train PPO on the PyBullet cart-pole, plot and film it"
	@echo "make train ARGS='algo=sac env=halfcheetah_bullet'"
	@echo "make test         set up, all tests (a rotating sample of the slow ones)"
	@echo "make check        ruff, mypy, import-linter, fast tests"
	@echo "make format       let ruff format and fix"
	@echo "make bench        the benchmarks"

setup: $(STAMP)

# torch first and alone: its version decides between a small and a very large build.
$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null 2>&1 || python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: Python 3.11 or newer is needed: install it or call make PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || "$$(command -v $(PYTHON) || command -v python3)" -m venv $(VENV)
	$(INSTALL) "$$(grep '^torch==' constraints.txt)"
	$(INSTALL) -c constraints.txt -e '.[$(EXTRAS)]'
	touch $(READY)

$(STAMP): $(READY)
	$(INSTALL) -c constraints.txt -e '.[dev]'
	touch $(STAMP)

train: $(READY)
	$(BIN)/python train.py $(ARGS)

test: setup
	$(BIN)/python scripts/run_tests.py all

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/run_tests.py fast

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/python -m benchmarks.against_sb3
	$(BIN)/python -m benchmarks.checkpoint

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache build dist *.egg-info
