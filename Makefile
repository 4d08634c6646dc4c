PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8000

.PHONY: run run-flask demo restart test lint bench packages clean

# The virtual environment, anew whenever the dependencies change.
$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

run: $(VENV)/.installed  ## Serve the example site with its data
	$(BIN)/python example_project/manage.py migrate --verbosity 0
	$(BIN)/python example_project/manage.py import_cities
	$(BIN)/python example_project/manage.py demo_user --port $(PORT)
	$(BIN)/python example_project/manage.py runserver $(PORT)

run-flask: $(VENV)/.installed  ## Serve the Flask app over the same data
	$(BIN)/python example_project/manage.py migrate --verbosity 0
	$(BIN)/python example_project/manage.py import_cities
	$(BIN)/python -m flask --app example_project/flask_atlas run --port $(PORT)

demo: $(VENV)/.installed  ## Have the example site visited for 20 seconds, and see what the cache did
	$(BIN)/python example_project/manage.py migrate --verbosity 0
	$(BIN)/python example_project/manage.py import_cities
	$(BIN)/python example_project/manage.py demo

restart: $(VENV)/.installed  ## Restart the example site under load, without and with a snapshot of its cache
	$(BIN)/python example_project/manage.py migrate --verbosity 0
	$(BIN)/python example_project/manage.py import_cities
	$(BIN)/python example_project/manage.py restart

test: lint  ## Every check
	$(BIN)/python -m pytest

lint: $(VENV)/.installed  ## Style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

packages:  ## The servers and the browser that some tests start, from Debian's packages where they are missing
	@command -v redis-server >/dev/null && command -v memcached >/dev/null \
		&& [ -x /usr/bin/chromium ] && [ -x /usr/bin/chromedriver ] || { \
		as_root=; [ "$$(id -u)" -eq 0 ] || as_root=sudo; \
		$$as_root apt-get update -qq \
		&& $$as_root apt-get install -y -qq redis-server memcached chromium chromium-driver; }

bench: $(VENV)/.installed  ## wheelcache beside its peers
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .fetched .pytest_cache .mypy_cache .ruff_cache .hypothesis
