# Everything a person does with this repository. `make` alone says what there is.

PYTHON ?= $(firstword $(foreach p,python3 python3.14 python3.13 python3.12 python3.11,\
  $(if $(shell $(p) -c 'import sys; sys.version_info >= (3, 11) and print(1)' 2>/dev/null),$(p))))
VENV := .venv
BIN := $(VENV)/bin
LOCKED := $(VENV)/locked
READY := $(VENV)/ready
PIP := $(BIN)/python -m pip --disable-pip-version-check
OFFLINE := A download failed: look at the lines above, check that the package index \
  can be reached (a proxy? PIP_INDEX_URL?) and run make again, it goes on where it stopped

.DEFAULT_GOAL := help
.PHONY: help setup run demo test lint format bench soak lock clean chart two-pods \
  test-chart-install

help: ## Say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile

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

$(READY): $(LOCKED) pyproject.toml
	@$(PIP) install --quiet --no-deps --no-build-isolation -e . || \
	  { echo "The project itself did not install into $(VENV): see above"; exit 1; }
	@touch $@

run: $(READY) ## A real Kafka broker and the proxy in front of it, ready to try
	@$(BIN)/kafka-delay-proxy dev $(ARGS)

demo: $(READY) ## Everything once, in a minute or two
	@$(BIN)/kafka-delay-proxy demo $(ARGS)

test: $(READY) ## Every test but the soak (starts its own broker when none is named)
	$(BIN)/python -m pytest -m "not soak" -n 4 --dist loadfile $(ARGS)

soak: $(READY) ## The long tests
	$(BIN)/python -m pytest -m soak $(ARGS)

bench: $(READY) ## Measure; prints the table and writes JSON
	$(BIN)/python -m tests.benchmarks $(ARGS)

lint: $(READY) ## Style, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(READY) ## Let ruff rewrite what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: ## Renew requirements.lock from pyproject.toml (for maintainers: needs uv on the PATH)
	uv pip compile --quiet --universal --python-version 3.11 --upgrade --generate-hashes \
	  --no-annotate --no-header --no-emit-index-url --no-emit-find-links --extra dev --extra spark \
	  --output-file requirements.lock pyproject.toml

clean: ## Remove what was built here (the user's cache of Kafka jars stays)
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis dist build
	find proxy storage spark_jobs tests -name __pycache__ -type d -exec rm -rf {} +

chart: $(READY) ## Renew what of the Helm chart is made from the settings: values, schema, README
	$(BIN)/python -m tests.support.chart_files

two-pods: $(READY) ## Two pods of the rendered chart as local processes; one is killed
	@$(BIN)/python -m tests.support.two_pods

test-chart-install: $(READY) ## Install, upgrade and roll back the chart in a real API server
	@$(BIN)/python -m tests.install
