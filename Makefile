# Everything a person does with this repository. `make` alone says what there is.

PYTHON ?= $(firstword $(foreach p,python3 python3.14 python3.13 python3.12 python3.11,\
  $(if $(shell $(p) -c 'import sys; sys.version_info >= (3, 11) and print(1)' 2>/dev/null),$(p))))
VENV := .venv
BIN := $(VENV)/bin
LOCKED := $(VENV)/locked
READY := $(VENV)/ready
PIP := $(BIN)/python -m pip --disable-pip-version-check
OFFLINE := The packages were not installed: the lines above say why. After a failed download check that \
  the package index can be reached (a proxy? PIP_INDEX_URL?) and run make again, it goes on where it stopped
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --no-annotate --no-header --no-emit-index-url --no-emit-find-links

# Tests start Python hundreds of times. Each start would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run shell demo check test test-rest test-all test-long test-kafka lint format bench bench-peers bench-stores soak overload lock openapi docs clean dist chart \
  release-check two-pods test-image test-chart-install test-pods

help: ## Say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' Makefile

setup: $(READY) ## Build .venv from requirements.lock (nothing to do when it is up to date)

$(LOCKED): requirements.lock
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; found: $$(python3 --version \
	  2>/dev/null || echo none). Install it, or name one: make PYTHON=/path/to/python3.12"; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$(PYTHON) cannot make a virtual environment. On Debian: apt install python3-venv"; \
	  exit 1; }
	@echo "Installing the locked packages into $(VENV) (a minute or so, once) ..."
	@$(PIP) install --require-hashes --no-deps -r requirements.lock || \
	  { echo "$(OFFLINE)"; exit 1; }
	@touch $@

$(READY): $(LOCKED) pyproject.toml client/pyproject.toml
	@$(PIP) install --quiet --no-deps --no-build-isolation -e . -e client || \
	  { echo "The project itself did not install into $(VENV): see above"; exit 1; }
	@touch $@

run: $(READY) ## A real Kafka broker and the proxy in front of it, ready to try
	@$(BIN)/kafka-delay-proxy dev $(ARGS)

shell: $(READY) ## A shell whose path has the commands of this folder
	@PATH="$(CURDIR)/$(BIN):$$PATH" $${SHELL:-sh}

demo: $(READY) ## Everything once, in about two minutes
	@$(BIN)/python examples/demo.py

PYTEST = $(BIN)/python -m pytest -n 4 --dist loadfile

check: lint ## Style, types, unit and property tests: nothing that needs a broker
	$(PYTEST) -n auto -m quick $(ARGS)

test: $(READY) ## Unit and property tests, and the core on a real broker and real Spark (about ten minutes)
	$(PYTEST) -m "quick or core" $(ARGS)
	@echo "Left out: faults, rarer paths and most audits (make test-rest), the slow tests (make test-all), the long ones (make test-long)"

test-rest: $(READY) ## What `make test` leaves out, but for the slow tests and the long ones (an hour)
	$(PYTEST) -m "not quick and not core and not slow and not long" $(ARGS)

test-all: $(READY) ## Every test but the long ones: also audits of thousands of records, random histories, clusters
	$(PYTEST) -m "not long" $(ARGS)

test-long: $(READY) ## The long tests
	$(BIN)/python -m pytest -m long $(ARGS)

test-kafka: $(READY) ## The tests that need a broker, with the Kafka of VERSION=3.9.2, say
	@test -n "$(VERSION)" || { echo "Name a version: make test-kafka VERSION=3.9.2"; exit 1; }
	KAFKA_VERSION=$(VERSION) $(BIN)/python -m pytest tests/integration tests/faults -m "not long" \
	  -n 2 --dist loadfile $(ARGS)

MINUTES ?= 10
SEED ?= 0
soak: $(READY) ## Faults of all kinds under load on three brokers: make soak MINUTES=60 SEED=1
	$(BIN)/python -m tools.soak --minutes $(MINUTES) --seed $(SEED) $(ARGS)

SCALE ?= 1
overload: $(READY) ## Loads beyond capacity, judged; memory drawn: make overload SCALE=0.01
	$(BIN)/python -m tools.overload --scale $(SCALE) $(ARGS)

bench: $(READY) ## Measure; says what is slower than in the last committed result
	$(BIN)/python -m tools.benchmarks $(ARGS)

bench-peers: $(READY) ## The same loads through ours, a plain relay, RocketMQ 5 and others: one table
	$(BIN)/python -m tools.benchmarks.peers $(ARGS)

bench-stores: $(READY) ## The kinds of store side by side: what each costs, by scenario; one table
	$(BIN)/python -m tools.benchmarks.stores $(ARGS)

lint: $(READY) ## Style, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=client $(BIN)/lint-imports --no-cache

format: $(READY) ## Let ruff rewrite what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: ## Renew the lock files from pyproject.toml (for maintainers: needs uv on the PATH)
	$(COMPILE) --upgrade --extra dev --extra spark --output-file requirements.lock pyproject.toml
	$(COMPILE) -c requirements.lock --extra msk --extra otel --extra rocksdb -o requirements-proxy.lock pyproject.toml
	$(COMPILE) -c requirements.lock --extra msk --extra spark -o requirements-audit.lock pyproject.toml
	printf 'hatchling\nsetuptools\n' | \
	  $(COMPILE) -c requirements.lock --upgrade -o requirements-build.lock -

docs: $(READY) ## The documentation as a site with a search, in build/site
	@rm -rf build/pages
	@$(BIN)/python -m tools.docs_site build/pages
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "Open build/site/index.html"

openapi: $(READY) ## Write docs/openapi.yaml from the calls of the admin port
	$(BIN)/python -m tools.openapi

clean: ## Remove what was built here (the user's cache of Kafka jars stays)
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis dist build
	find proxy storage spark_jobs client tests tools -name __pycache__ -type d -exec rm -rf {} +

DIST := $(CURDIR)/dist
HATCHLING := build/hatchling/bin/hatchling
# Archives get the time of the newest commit, so that equal sources give equal bytes.
dist release-check: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 1580601600)

build/hatchling/bin/hatchling: requirements-build.lock
	@$(PYTHON) -m venv build/hatchling
	@build/hatchling/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $<
	@touch $@

dist: $(HATCHLING) ## Wheels and source archives into dist/; needs hatchling alone
	@rm -rf $(DIST)
	@$(HATCHLING) build --target sdist --target wheel --directory $(DIST)
	@cd client && $(abspath $(HATCHLING)) build --target sdist --target wheel --directory $(DIST)

release-check: $(READY) ## Make all files of a release, check them and the workflows; publish nothing
	@$(BIN)/python -m tools.release $(ARGS)

test-image: $(READY) ## The Dockerfile's steps in a clean Debian root, and what they make (root, Linux)
	@$(BIN)/python -m tools.image $(ARGS)

chart: $(READY) ## Renew the parts of the Helm chart that are made from the settings: values, schema
	$(BIN)/python -m tests.support.chart.chart_files

two-pods: $(READY) ## Two pods of the rendered chart as local processes; one is killed
	@$(BIN)/python -m tests.support.chart.two_pods

test-chart-install: $(READY) ## Install, upgrade and roll back the chart in a real API server
	@$(BIN)/python -m tools.install

test-pods: $(READY) ## The chart's pods on a real Kubernetes of one node: faults, upgrade, drain, audit (root, Linux)
	@$(BIN)/python -m tools.pods
