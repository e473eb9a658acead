# Every target makes .venv and installs what it needs first; run them in any order, as often as you like.

VENV := .venv
BIN := $(VENV)/bin
SUPPORTED := import sys; raise SystemExit(not (3, 11) <= sys.version_info[:2] < (3, 14))
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c '$(SUPPORTED)' 2>/dev/null && echo $$python && break; done)

.PHONY: install demo test test-ray test-flower lint bench bench-peers bench-ray digests interoperability docs
.NOTPARALLEL:

install: $(VENV)/.installed-dev

# CI=true installs the versions that are known to pass; users are held to pyproject.toml alone.
CONSTRAINTS := $(if $(CI),--constraint .ci/constraints.txt)

# One stamp per extra. They live inside .venv, so removing .venv removes them too.
$(VENV)/.installed-%: pyproject.toml
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
		test -n "$(PYTHON)" || { echo "turnout needs Python 3.11, 3.12 or 3.13; none was found. Set PYTHON=/path/to/python."; exit 1; }; \
		echo "Creating $(VENV) with $(PYTHON)"; $(PYTHON) -m venv --clear $(VENV); }
	@echo "Installing turnout[$*] into $(VENV): a minute or two the first time"
	@$(BIN)/python -m pip install -qq $(CONSTRAINTS) --editable '.[$*]'
	@touch $@

demo: $(VENV)/.installed-dev
	@$(BIN)/turnout run demo --out runs/demo
	@$(BIN)/turnout report runs/demo
	@echo "Everything it found is in runs/demo. The command is $(BIN)/turnout."

# Two workers with one operation thread each: tests are many and small. Tests on clusters and devices are targets of
# their own.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
test: $(VENV)/.installed-dev
	@$(ONE_THREAD) $(BIN)/python -m pytest -n 2 -m "not ray and not flower"

# Real Ray clusters, in a network namespace with loopback alone: as root, and with the command ip. In one process, whose
# tests share a cluster.
test-ray: $(VENV)/.installed-dev $(VENV)/.installed-ray
	@$(ONE_THREAD) $(BIN)/python -m pytest tests/engine/ray

# Real SuperLinks and SuperNodes on loopback. Flower has an environment of its own: it needs other versions of packages
# that the trackers need, too.
FLOWER := .venv-flower
test-flower: $(FLOWER)/.installed
	@$(ONE_THREAD) $(FLOWER)/bin/python -m pytest -m flower tests/deployment

$(FLOWER)/.installed: pyproject.toml $(VENV)/.installed-dev
	@test -x $(FLOWER)/bin/python || $(BIN)/python -m venv $(FLOWER)
	@echo "Installing turnout[dev,flower] into $(FLOWER): a minute or two the first time"
	@$(FLOWER)/bin/python -m pip install -qq $(if $(CI),--constraint .ci/constraints-flower.txt) --editable '.[dev,flower]'
	@touch $@

lint: $(VENV)/.installed-dev
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

# All are measured whatever the first says; a bar that is not met fails the target at the end.
bench: $(VENV)/.installed-dev
	@mkdir -p runs/bench; status=0; \
	for part in run many_runs runs_an_hour million families rules personal widths filtering fleet table3; do \
		$(BIN)/python -m benchmarks.$$part --json runs/bench/$$part.json || status=1; done; \
	echo "The figures are in runs/bench/*.json"; exit $$status

bench-peers: $(VENV)/.installed-dev
	@mkdir -p runs/bench; $(BIN)/python -m benchmarks.peers.run --json runs/bench/peers.json

bench-ray: $(VENV)/.installed-dev $(VENV)/.installed-ray
	@mkdir -p runs/bench; $(BIN)/python -m benchmarks.ray --json runs/bench/ray.json

# Has any number changed since it was last recorded? The table says which, and why where a change was meant.
digests: $(VENV)/.installed-dev
	@$(BIN)/python -m benchmarks.digests

interoperability: $(VENV)/.installed-dev
	@mkdir -p runs/bench; $(BIN)/python -m benchmarks.interoperability --json runs/bench/interoperability.json

# The variable turns off the theme's notice about the next MkDocs; warnings about the pages themselves still fail.
docs: $(VENV)/.installed-docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Wrote site/index.html"
