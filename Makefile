PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8000
# Processes that the tests run in. Many tests wait for a server or a thread, so four of them keep two cores busy.
WORKERS ?= 4
# Of the examples that `make deep` tries.
SEED := $(or $(SEED),$(shell date +%s))
MANAGE := $(BIN)/python example_project/manage.py
PYTEST := $(BIN)/python -m pytest

# $(call run-tests,OPTIONS,MARKERS). Tests that another one would disturb come last, in one process.
define run-tests
$(PYTEST) --numprocesses $(WORKERS) $(1) -m "not alone$(2)"
$(PYTEST) $(1) -m "alone$(2)"
endef

# The tests of code that meets the core directly. tests/core are over both in each run.
ON_BOTH_CORES := $(addprefix tests/,engine timers fill_waits backends django_backend flask_backend)

# What is compiled, where there is a compiler.
CORE := setup.py $(wildcard wheelcache/core/*.pyx wheelcache/core/*.pxi)
# A compiler that was installed after the virtual environment was made: `make test`, then `make check`.
ifeq ($(and $(shell command -v cc),$(if $(wildcard wheelcache/core/_core*.so),,missing)),missing)
CORE += compiler-found
endif

.PHONY: help heart run run-flask demo cluster free-port data test check deep mutants test-python-core test-new-user oldest docs lint packages reference bench wheel sites sanitize clean compiler-found

help:  ## List the commands
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## / { printf "make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

SAY_CORE = $(BIN)/python -c 'from wheelcache.core import IMPLEMENTATION; print(f"wheelcache runs on its {IMPLEMENTATION} core")'

# Each set of packages includes those before it: 135 MB for the example, 280 MB for `make test`, 510 MB for all.
SETS := example test dev
$(SETS:%=$(VENV)/.%): $(VENV)/.%: pyproject.toml $(CORE)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	@$(SAY_CORE)
	@for set in $(SETS); do touch $(VENV)/.$$set; [ $$set = $* ] && break; done

# The last command makes the system checks. Each command that made them would report a missing compiled core again.
run: free-port data  ## Serve the example site with its data
	$(MANAGE) demo_user --port $(PORT) --skip-checks
	$(MANAGE) runserver $(PORT)

run-flask: free-port data  ## Serve the Flask app over the same data
	$(BIN)/python -m flask --app example_project/flask_atlas run --port $(PORT)

demo: data  ## Visit the example site for 20 seconds; print the figures of its cache, and pages per second with and without it
	$(MANAGE) demo

cluster: $(VENV)/.dev  ## Two "machines" with Redis, a Redis Cluster, or neither: delay of writes, speed of reads, wrong reads
	@cd example_project && PYTHONPATH=.. $(abspath $(BIN))/python -m cluster

free-port:
	@$(PYTHON) example_project/free_port.py "$(PORT)"

data: $(VENV)/.example
	$(MANAGE) migrate --verbosity 0 --skip-checks
	$(MANAGE) import_cities --skip-checks

# The same hashes in each run: see tests/conftest.py.
test check deep heart mutants test-python-core oldest sanitize: export PYTHONHASHSEED = 0

test: $(VENV)/.test  ## The tests that need no root, server, browser or compiler: some three minutes, for every change
	$(call run-tests,--hypothesis-profile quick, and not servers and not browser and not conformance and not deep)

check: export WHEELCACHE_CORE = compiled
check: packages  ## Style, types and every test, on the compiled core, with one case of each deep test; tests/core are over both
	@$(MAKE) --no-print-directory lint
	$(call run-tests,--one-deep-case)

deep: export WHEELCACHE_CORE = compiled
deep: packages  ## The deep tests with all their cases, and new examples for all tests with Hypothesis
	@$(MAKE) --no-print-directory $(VENV)/.dev
	@echo "To repeat these examples: make deep SEED=$(SEED)"
	$(call run-tests,--hypothesis-profile random --hypothesis-seed $(SEED), and (deep or hypothesis))

mutants: export WHEELCACHE_CORE = compiled
mutants: packages  ## Small changes of meaning, in copies of the package, each of which one named test must detect
	@$(MAKE) --no-print-directory $(VENV)/.dev
	$(BIN)/python -m tests.mutants

test-python-core: export WHEELCACHE_CORE = python
test-python-core: packages  ## The deep tests, and those with Hypothesis, of code that meets the core directly, on the core in Python
	@$(MAKE) --no-print-directory $(VENV)/.dev
	$(PYTEST) --numprocesses $(WORKERS) --one-deep-case -k "not tier" $(ON_BOTH_CORES) -m "(deep or hypothesis) and not servers and not browser"

# The folder is under .fetched, so that it is not part of another run.
heart: $(VENV)/.dev  ## The core, the engine and the backends alone, without any guest, with their tests; or with GUESTS="pages timers"
	$(BIN)/python -m tests.heart .fetched/heart --guests $(GUESTS) --numprocesses $(WORKERS) --hypothesis-profile quick -m "not alone and not servers and not deep"

# On the core in Python.
test-new-user:  ## make test in a clean clone of the last commit, as a user without a compiler and without root
	tests/new_user.sh

# `make check` has the newest versions that this Python can have.
oldest: $(VENV)/.dev  ## The tests of the backends, on the oldest supported versions of Django and Flask-Caching
	$(BIN)/nox --session "tests-$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')(django='5.2', flask_caching='2.3')"

lint: $(VENV)/.dev  ## Style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

packages:  ## Install the Debian packages that the tests need, after a question or with INSTALL_PACKAGES=1
	@PYTHON='$(PYTHON)' tests/packages.sh

# MkDocs Material: 120 MB. Graphviz draws the flowcharts.
$(VENV)/.docs: $(VENV)/.example
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@

reference: $(VENV)/.example  ## Write the tables in docs/reference, from the code and the published figures
	$(BIN)/python docs/tables.py

docs: $(VENV)/.docs  ## Build the documentation in .fetched/site; warnings and dead links are errors
	@command -v dot >/dev/null || { echo "The documentation needs dot: apt-get install graphviz" >&2; exit 1; }
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The documentation is in .fetched/site. To read and search it: python3 -m http.server --directory .fetched/site"

bench: $(VENV)/.dev  ## Compare wheelcache with its peers
	$(BIN)/python -m benchmarks

# A copy, whose extensions are built with the sanitizers. Python itself frees what it holds at the exit only, so leaks are
# not looked for here, but by a test.
SANITIZED := .fetched/sanitized
SANITIZERS := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer

sanitize: $(VENV)/.dev  ## The tests of the core under AddressSanitizer and UBSan, and with checked memory
	rm -rf $(SANITIZED)
	mkdir -p $(SANITIZED)
	cp -r setup.py pyproject.toml README.md LICENSE wheelcache tests $(SANITIZED)
	rm -f $(SANITIZED)/wheelcache/core/*.so $(SANITIZED)/wheelcache/core/*.c
	cd $(SANITIZED) && CFLAGS='$(SANITIZERS)' LDFLAGS='$(SANITIZERS)' $(abspath $(BIN))/python setup.py -q build_ext --inplace
	cd $(SANITIZED) && FUZZED_STEPS=20000 LD_PRELOAD="$$($(CC) -print-file-name=libasan.so)" ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
		$(abspath $(BIN))/python -m pytest -p no:cacheprovider --numprocesses 2 --timeout 1800 -k "not python" tests/core
	PYTHONMALLOC=debug $(PYTEST) --numprocesses 2 -k "not python" tests/core

# The wheel is built from the source distribution. CC fails, so that the second environment gets the core in Python.
wheel: $(VENV)/.dev  ## Build a source distribution and a wheel, and test them where nothing is installed
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl
	for core in compiled python; do $(PYTHON) -m venv dist/$$core || exit 1; done
	dist/compiled/bin/python -m pip install --quiet --no-index dist/*.whl
	CC=/bin/false dist/python/bin/python -m pip install --quiet dist/*.tar.gz
	cd dist && for core in compiled python; do env -i $$core/bin/python -I ../tests/wheel_check.py $$core || exit 1; done

sites: packages  ## sites that others wrote, from their sources: rehearse, paste the block and serve; fetches 700 MB
	@$(MAKE) --no-print-directory $(VENV)/.dev
	$(PYTEST) --capture=tee-sys tests/sites/make_sites.py

clean:  ## Remove everything that the other commands made
	rm -rf build dist *.egg-info wheelcache/core/*.c wheelcache/core/*.so
	rm -rf $(VENV) .fetched .pytest_cache .mypy_cache .ruff_cache .hypothesis
