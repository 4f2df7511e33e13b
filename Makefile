# `make demo` and `make test` set up all they need in .venv, from Python 3.11 or newer and GNU make alone.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := daemonkit dnswebhook proxy tunnelgw tests tools benchmarks examples setup.py
# Tests mostly wait for real programs, so run more processes than cores. By default, files with the fewest tests come
# last, but theirs are the longest: tests/support/sharing.py has another order.
PYTEST_ARGS ?= --numprocesses=5 --dist=loadfile --no-loadscope-reorder

# Python images often set it. Each of the hundreds of processes that tests start would then compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
# Not even with -j in MAKEFLAGS: benchmarks beside each other would measure each other.
.NOTPARALLEL:
.PHONY: help demo test conformance lint format generate bench bench-dns bench-proxy bench-tunnel bench-controller limits-proxy limits-tunnel pins clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 23

demo: $(VENV)/runtime ## run everything on this machine, without Kubernetes; ONCE=1 ends after a few requests
	@$(BIN)/python -m examples.demo $(if $(ONCE),--once) $(DEMO_ARGS)

test: $(VENV)/development ## run all tests; if Go is installed, first build the real external-dns, etcd, kube-apiserver, helm, h2spec ...
	@if command -v go >/dev/null; then \
	  $(BIN)/python tests/programs/install.py >/dev/null; \
	else \
	  echo "make test: Go is not installed, so the tests that drive the real external-dns, helm or h2spec are skipped (see below)"; \
	fi
	$(BIN)/python -m pytest $(PYTEST_ARGS)

conformance: $(VENV)/development ## run Gateway API's conformance suite against controller and proxy, with all features that we claim; needs Linux and Go
	$(BIN)/python tests/programs/install.py conformance etcd kube-apiserver conformance-crds >/dev/null
	$(BIN)/python -m tests.conformance $(CONFORMANCE_ARGS)

lint: $(VENV)/development ## check style, types, layers, and that generated files are up to date
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.generate --check

format: $(VENV)/development ## format the sources
	$(BIN)/ruff check --fix-only $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

generate: $(VENV)/development ## write all generated files: structs and client from OpenAPI, schema, pages of docs/, dashboards
	$(BIN)/python -m tools.generate

bench: bench-dns bench-proxy bench-tunnel bench-controller ## run all benchmarks; BENCH_ARGS=--quick only checks that they work

bench-dns: $(VENV)/development ## measure the DNS webhook, beside those of its peers that are installed
	$(BIN)/python -m benchmarks.dns $(BENCH_ARGS)

bench-proxy: $(VENV)/development ## measure the proxy, beside nginx and nghttpx; needs these and h2load
	$(BIN)/python -m benchmarks.proxy $(BENCH_ARGS)

bench-tunnel: $(VENV)/development ## measure the tunnel, beside cloudflared where it is installed; needs Go and nginx
	$(BIN)/python -m benchmarks.tunnel $(BENCH_ARGS)

bench-controller: $(VENV)/development ## measure the controller against a real API server; needs what `make test` builds
	$(BIN)/python -m benchmarks.controller $(BENCH_ARGS)

limits-proxy: $(VENV)/development ## measure what 5,000 idle connections and bodies of 1 GiB cost in the proxy
	$(BIN)/python -m benchmarks.proxy_limits

limits-tunnel: $(VENV)/development ## measure bodies of 1 GiB through the tunnel, and check that a minute of restarts at 500 requests/s loses none
	$(BIN)/python -m benchmarks.tunnel_limits

pins: $(VENV)/development ## update requirements-dev.txt to the newest versions
	$(BIN)/python -m tools.pins

clean: ## remove everything that these commands created in the checkout
	rm -rf $(VENV) build dist *.egg-info .*_cache .hypothesis .state/conformance benchmarks/results
	find $(SOURCES) -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/python-is-new-enough:
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found: install Python 3.11 or newer, or name it: make PYTHON=/path/python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"make: $(PYTHON) is Python {v.major}.{v.minor}, want 3.11 or newer: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	@echo "make: creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { echo "make: $(PYTHON) cannot create a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; rm -rf $(VENV); exit 1; }
	@touch $@

$(VENV)/runtime: setup.cfg setup.py requirements-dev.txt | $(VENV)/python-is-new-enough
	@echo "make: installing the runtime requirements into $(VENV)"
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements-dev.txt --editable . \
	  || { echo "make: pip could not install the requirements, for the reason above; it needs access to a package index" >&2; exit 1; }
	@touch $@

$(VENV)/development: requirements-dev.txt $(VENV)/runtime
	@echo "make: installing the development requirements into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements-dev.txt \
	  || { echo "make: pip could not install the requirements, for the reason above; it needs access to a package index" >&2; exit 1; }
	@touch $@
