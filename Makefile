# `make` alone lists what there is. Everything lives in .venv; PYTHON names the Python that makes it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCK := uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
	--no-annotate --no-config --quiet --no-emit-package scrubjay
# What the contract may not break: the newest release, or the commit before this one.
BASELINE = $(shell git describe --tags --abbrev=0 2>/dev/null || git rev-parse -q --verify HEAD~1 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help setup demo run test soak check format lint types proto lock

help: ## Lists what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/server.stamp ## Shows what Scrubjay does, with a server of its own, and ends
	@$(BIN)/python demo/run.py

run: $(VENV)/server.stamp ## Runs a server on this machine; the first start prints its keys
	@$(BIN)/python -m server serve

setup: ## Prepares .venv, again if it is there; the others do it when it is needed
	@$(PYTHON) requirements/install.py server && touch $(VENV)/server.stamp

test: $(VENV)/dev.stamp ## Runs the tests, on two cores
	$(BIN)/pytest -n 2 --dist loadfile

soak: $(VENV)/dev.stamp ## Runs the model of sync with all its faults, RUNS times (1000)
	$(BIN)/python -m tests.sync.soak --runs $(or $(RUNS),1000)

check: format lint types proto test ## Checks everything, as CI does

format: $(VENV)/dev.stamp
	$(BIN)/ruff format --check .
	$(BIN)/buf format proto --diff --exit-code

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/hadolint deploy/Dockerfile

types: $(VENV)/dev.stamp
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

proto: $(VENV)/dev.stamp
	$(BIN)/buf lint proto
	$(BIN)/python proto/generate.py --check
	@if [ -z "$(BASELINE)" ] || ! git cat-file -e "$(BASELINE):proto/buf.yaml"; then \
		echo "no earlier contract to compare with"; \
	else \
		echo "buf breaking against $(BASELINE)"; \
		git archive --format=tar "$(BASELINE)" proto | \
			$(BIN)/buf breaking proto --against '-#format=tar,subdir=proto'; \
	fi

lock: export UV_CUSTOM_COMPILE_COMMAND = make lock
lock: ## Pins what pyproject.toml asks for; what is pinned stays where it can
	$(PYTHON) -m venv $(VENV)/lock
	$(VENV)/lock/bin/pip install --quiet uv==0.13.9
	$(VENV)/lock/bin/$(LOCK) --all-extras --group build --no-emit-package hnswlib -o requirements/dev.txt
	$(VENV)/lock/bin/$(LOCK) --extra server --extra postgres --group build --no-emit-package hnswlib \
		-c requirements/dev.txt -o requirements/server.txt
	$(VENV)/lock/bin/$(LOCK) --extra e5 -c requirements/dev.txt -o requirements/e5.txt
	$(VENV)/lock/bin/$(LOCK) --extra hnsw -c requirements/dev.txt -o requirements/hnsw.txt

$(VENV)/server.stamp: pyproject.toml requirements/server.txt requirements/hnsw.txt
	@$(PYTHON) requirements/install.py server
	@touch $@

$(VENV)/dev.stamp: pyproject.toml requirements/dev.txt requirements/hnsw.txt
	@$(PYTHON) requirements/install.py dev
	@touch $@ $(VENV)/server.stamp
