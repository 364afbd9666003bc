# What a developer runs; every target sets up what it needs. Nothing has to be active or installed but Python 3.11.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

RUN := scripts/run
STAMP := .venv/.set-up
ARCHIVE := .venv/.class-archive
BENCH_ROWS ?= 20000000
SOAK_SECONDS ?= 600
SOAK_SEED ?= 7
CHAIN_SECONDS ?= $(SOAK_SECONDS)
UI_PORT ?= 3000
DAGSTER_HOME ?= $(CURDIR)/.dagster
PYTEST_ARGS ?=
WORKERS ?= 2

.PHONY: jars help setup demo ui bench soak ready check lint types layers test long format lock clean

help: ## list the targets
	@sed -nE 's/^([a-z]+):.*## (.*)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | while IFS='|' read -r name text; do \
	  printf '  make %-8s %s\n' "$$name" "$$text"; done

setup: $(STAMP) $(ARCHIVE) ## make .venv with pinned packages, .java where there is no Java 17, and Java's archive of Spark's classes
$(STAMP): pyproject.toml requirements.lock scripts/setup scripts/java.py
	@scripts/setup && echo "setup: packages took $$SECONDS s"
	@touch $@

# Drivers start in 60 % of the time from it; where Java makes none, all works without.
$(ARCHIVE): $(STAMP)
	@echo "setup: making Java's archive of Spark's classes, so that Spark starts faster; takes about a minute"
	@$(RUN) tidemark class-archive && echo "setup: the archive took $$SECONDS s" || echo "setup: Spark starts without an archive of its classes, which takes longer"
	@touch $@

jars: $(STAMP) ## download a Kafka broker and Spark's connectors, which the tests of Kafka (50 MB) and of Spark on S3 (690 MB) need
	@$(RUN) python scripts/jars.py

demo: setup $(DAGSTER_HOME)/dagster.yaml ## run the taxi example on generated trips, wave by wave (two to three minutes on an idle machine)
	@echo "demo: six waves of generated taxi trips, and the events of airport rides with every second one, materialized by Dagster; takes two to three minutes on an idle machine, then shows the books and how long each part took"
	@DAGSTER_HOME="$(DAGSTER_HOME)" $(RUN) python -m examples.taxi.demo

# Not at the top of the checkout: there `dagster dev` warns of a file that it does not read.
$(DAGSTER_HOME)/dagster.yaml: examples/dagster.yaml
	@mkdir -p "$(@D)"
	@cp $< "$@"

ui: setup $(DAGSTER_HOME)/dagster.yaml ## serve Dagster on http://127.0.0.1:3000 (UI_PORT), in about 20 seconds
	@mkdir -p .tidemark/taxi/landing .tidemark/taxi/events/rides .tidemark/taxi/events/fares .tidemark/taxi/events/limits
	@$(RUN) python scripts/free_port.py $(UI_PORT)
	@echo "ui: starting Dagster, which takes about 20 seconds; then open http://127.0.0.1:$(UI_PORT). Ctrl-C ends it"
	@PYTHONWARNINGS='ignore:Function `dev_command` is superseded' DAGSTER_HOME="$(DAGSTER_HOME)" $(RUN) dagster dev --workspace workspace.yaml --host 127.0.0.1 --port $(UI_PORT)

bench: setup ## compare with stock Spark (BENCH_ROWS=20000000)
	BENCH_ROWS=$(BENCH_ROWS) $(RUN) python -m benchmarks

soak: setup ## minutes of kills, which `make test` leaves out (SOAK_SECONDS=600 SOAK_SEED=7)
	SOAK_SECONDS=$(SOAK_SECONDS) SOAK_SEED=$(SOAK_SEED) $(RUN) pytest -s tests/soak/test_soak.py
	CHAIN_SECONDS=$(CHAIN_SECONDS) CHAIN_SEED=$(SOAK_SEED) $(RUN) pytest -s tests/soak/test_chain.py
	TOGETHER_SECONDS=$$(($(SOAK_SECONDS) / 2)) TOGETHER_SEED=$(SOAK_SEED) $(RUN) pytest -s tests/control/test_reconcilers_at_once.py

# mypy and the class archive keep one core each for a minute, so they go at a time; the tests want both for themselves.
ready:
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target types setup layers lint

check: ready ## all that CI asks for
	@$(MAKE) --no-print-directory test

lint: $(STAMP) ## style of code and its format
	$(RUN) ruff check .
	$(RUN) ruff format --check .

types: $(STAMP) .layout ## mypy, strict
	$(RUN) mypy --package tidemark
	$(RUN) mypy conftest.py examples benchmarks scripts tests

layers: $(STAMP) .layout ## imports run one way
	PYTHONPATH="$(CURDIR)/.layout" $(RUN) lint-imports --no-logo

.PHONY: .layout
.layout: $(STAMP)
	@$(RUN) python scripts/layout.py .layout

# Hundreds of processes import the same modules; where $PYTHONDONTWRITEBYTECODE is set, each would compile them. In a checkout that cannot be
# written to they do; of a file that is no Python the tests say so.
test: setup ## the tests (PYTEST_ARGS="-k windows" WORKERS=2)
	@$(RUN) python -m compileall -qq -j 0 platform assets resources sensors operations components examples tests || echo "test: not every module could be compiled beforehand, which takes longer"
	$(RUN) pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

long: setup ## every test with ten times the random cases and all the walks, which take hours
	@HYPOTHESIS_PROFILE=long $(MAKE) --no-print-directory test

format: $(STAMP) ## put the code into shape
	$(RUN) ruff check --fix-only .
	$(RUN) ruff format .

lock: ## write requirements.lock from what is in .venv
	scripts/lock

clean: ## remove all that these targets made, also the demo's data
	rm -rf .venv .java .jars .layout .dagster .tidemark build dist spark-warehouse
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf *.egg-info platform/*.egg-info
