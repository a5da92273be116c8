# make train · make test · make quick · make check · make docs · make bench: each sets up what it needs.
PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin
# What training needs; what the tests and checks need besides.
READY  := $(VENV)/.ready
STAMP  := $(VENV)/.installed
NEWEST ?= .venv-newest
# Of a newer Python, without PyBullet.
NEWPY  ?= .venv-newer
ARGS   ?= algo=ppo env=cartpole_bullet
EXTRAS := bullet,classic,panda,tune
WITHOUT_BULLET := classic,mujoco,tune
# A broken link or anchor fails the build; the variable silences an advertisement of the theme.
SITE := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
# Nobody waits until all modules are compiled: a first command compiles those that it imports. The others follow at
# the lowest priority, for starts where Python may write no bytecode. Killed, it leaves whole files only.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
COMPILE = nohup nice -n 19 $(BIN)/python -m compileall -q $(VENV)/lib rlzoo_plus robots hydra_plugins >/dev/null 2>&1 &

.PHONY: help setup train test quick check lint types site fast newest newer docs format bench clean

help:
	@echo "make train        set up, train PPO on the PyBullet cart-pole, draw the curve, record a video"
	@echo "make train ARGS='algo=sac env=halfcheetah_bullet'"
	@echo "make PYBULLET=1      on Python 3.12 or later: compile PyBullet, instead of MuJoCo alone"
	@echo "make test         run the tests (of those that train a rotating half, of the slow ones a sample)"
	@echo "make quick        lint, types and the fast tests nearest to what you have changed (a minute)"
	@echo "make newest       the same for all of it, with the newest versions that pyproject.toml allows"
	@echo "make newer PYTHON=python3.13   a sample of the tests on a newer Python, where PyBullet has no wheel"
	@echo "make check        run ruff, mypy, import-linter, the documentation build, the fast tests"
	@echo "make docs         build the documentation site into build/site"
	@echo "make format       format and fix with ruff"
	@echo "make bench        measure against rl_zoo3 and plain Stable-Baselines3, side by side (hours)"
	@echo "make bench BENCH='--cases help \"ppo CartPole\" --rounds 1'"

setup: $(STAMP)

# PyBullet's wheels end with Python 3.11. Later ones take MuJoCo, and of PyBullet its models alone; PYBULLET=1
# compiles it.
IS_NEWER := $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 12))'
define COMPILED
echo "make: PyBullet has no wheel for this Python and is compiled now: about ten minutes on one core."; \
command -v c++ >/dev/null 2>&1 || command -v g++ >/dev/null 2>&1 || { \
  echo "make: that needs a C++ compiler: apt-get install build-essential"; exit 1; }
endef

# An older pip takes twice as long to choose versions. Then torch, alone: its version decides between a small
# and a very large build.
$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null 2>&1 || python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: Python 3.11 or newer is needed: install it or call make PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || "$$(command -v $(PYTHON) || command -v python3)" -m venv $(VENV)
	@if [ -n "$(PYBULLET)" ] && $(IS_NEWER); then $(COMPILED); fi
	$(INSTALL) "$$(grep '^pip==' constraints.txt)"
	$(INSTALL) "$$(grep '^torch==' constraints.txt)"
	@if [ -z "$(PYBULLET)" ] && $(IS_NEWER); then extras="$(WITHOUT_BULLET)"; else extras="$(EXTRAS)"; fi; \
	  $(INSTALL) -c constraints.txt -e ".[$$extras]" && $(BIN)/python -m robots.engines.models >/dev/null
	touch $(READY)
	@$(COMPILE)

$(STAMP): $(READY)
	$(INSTALL) -c constraints.txt -e '.[dev]'
	touch $(STAMP)
	@$(COMPILE)

train: $(READY)
	$(BIN)/python train.py $(ARGS)
	@echo "a quadruped that walks already: $(BIN)/rlzoo-plus enjoy trained/a1_walk, which needs a display,"
	@echo "or its video, trained/a1_walk/videos/best.mp4"

test: setup
	$(BIN)/python scripts/run_tests.py all

quick: setup
	$(BIN)/python scripts/quick.py $(if $(SINCE),--since $(SINCE))

# In a virtual environment of its own, without constraints.txt.
newest:
	test -x $(NEWEST)/bin/python || $(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade --upgrade-strategy eager -e '.[dev]'
	$(NEWEST)/bin/python scripts/quick.py --all

$(NEWPY)/.ready: pyproject.toml constraints.txt
	test -x $(NEWPY)/bin/python || $(PYTHON) -m venv $(NEWPY)
	$(NEWPY)/bin/python -m pip install --quiet --disable-pip-version-check "$$(grep '^pip==' constraints.txt)"
	$(NEWPY)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
	  -c constraints.txt -e '.[classic,tune]' pytest pytest-xdist
	touch $(NEWPY)/.ready

newer: $(NEWPY)/.ready
	$(NEWPY)/bin/python scripts/run_tests.py newer

# make -j2 check does two of them at a time: types take a minute, and one core.
check: lint types site fast

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: setup
	$(BIN)/mypy

site: setup
	$(SITE)

fast: setup
	$(BIN)/python scripts/run_tests.py fast

docs: site
	@echo "build/site/index.html  (while you write: $(BIN)/mkdocs serve)"

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/python -m benchmarks.side_by_side $(BENCH)

clean:
	rm -rf $(VENV) $(NEWEST) $(NEWPY) .mypy_cache .ruff_cache .import_linter_cache build dist *.egg-info
