PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8000
# Processes that the tests run in. Many tests wait for a server or a thread, so two of them keep two cores busy.
WORKERS ?= 2
MANAGE := $(BIN)/python example_project/manage.py
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS)

.PHONY: run run-flask demo restart free-port data test quick lint packages bench clean

# What the example needs, in the virtual environment: 115 MB.
$(VENV)/.example: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[example]'
	touch $@

# What the checks need, which includes what the example needs: 330 MB.
$(VENV)/.dev: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(VENV)/.example $@

run: free-port data  ## Serve the example site with its data
	$(MANAGE) demo_user --port $(PORT)
	$(MANAGE) runserver $(PORT)

run-flask: free-port data  ## Serve the Flask app over the same data
	$(BIN)/python -m flask --app example_project/flask_atlas run --port $(PORT)

demo: data  ## Have the example site visited for 20 seconds, and see what the cache did
	$(MANAGE) demo

restart: data  ## Restart the example site under load, without and with a snapshot of its cache
	$(MANAGE) restart

free-port:
	@$(PYTHON) example_project/free_port.py "$(PORT)"

data: $(VENV)/.example
	$(MANAGE) migrate --verbosity 0
	$(MANAGE) import_cities

test: packages  ## Every check
	@$(MAKE) --no-print-directory lint
	$(PYTEST)

quick: $(VENV)/.dev  ## The tests that take a minute and no server, for every change
	$(PYTEST) --hypothesis-profile quick -m "not servers and not browser and not conformance and not deep"

lint: $(VENV)/.dev  ## Style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

packages:  ## The Debian packages that the tests need: installed as root or with sudo, otherwise named
	@PYTHON='$(PYTHON)' tests/packages.sh

bench: $(VENV)/.dev  ## wheelcache beside its peers
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .fetched .pytest_cache .mypy_cache .ruff_cache .hypothesis
