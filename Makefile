# Every target makes the virtual environment it needs from the system's Python and requirements.lock.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Tests at a time: each process with whole runs has a local cloud of its own, so that more than four serve nobody.
JOBS ?= $(shell cores=$$(nproc 2>/dev/null || echo 2); echo $$((cores < 4 ? cores : 4)))
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

.PHONY: help env demo test test-fast faults check format bench parity soak hawk smoke-aws lock clean
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

env: $(READY) ## Make the virtual environment

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Inspect Fleet needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	@grep -A 40 '^uv==' requirements.lock | sed -n '1p;/^    --hash/p;/^    #/q' > $(VENV)/uv.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(VENV)/uv.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $@

demo: $(READY) ## Run the example eval on a local cloud of two instances
	@$(BIN)/python -m examples.demo

test: $(READY) ## All tests: fast ones first, then whole runs on the local cloud
	$(PYTEST) -m "not cloud and not docker and not browser and not hawk"
	$(PYTEST) -m "(cloud or docker or browser) and not exhaustive"

test-fast: $(READY) ## Tests that start no Prefect server and no local cloud
	$(PYTEST) -m "not cloud and not docker and not browser and not hawk"

faults: $(READY) ## The tests of every fault in docs/faults.md, which gets their results
	@$(BIN)/python -m tests.faults -n $(JOBS)

check: $(READY) ## Format, lint, types, rooms, templates, shell scripts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/cfn-lint fleet/account/template.yaml worker_image/pipeline.yaml
	@set -e; scripts=$$(git ls-files '*.sh' .ci); \
	  $(BIN)/shellcheck $$scripts; $(BIN)/shfmt -d -i 4 $$scripts

format: $(READY) ## Format code and scripts
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/shfmt -w -i 4 $$(git ls-files '*.sh' .ci)

parity: $(READY) ## Public evals on the fleet and with plain Inspect, compared field by field
	@$(BIN)/python -m tests.parity

soak: $(READY) ## An eval of hundreds of jobs under hundreds of random faults, for three seeds
	@$(BIN)/python -m tests.soak

hawk: $(READY) ## The same evals on Hawk's real server, on the fleet and in plain Inspect; needs PostgreSQL and CPython 3.13
	@$(BIN)/python -m tests.hawk

bench: $(READY) ## Ratios, ours beside the plain way, taken in one run
	@$(BIN)/python -m tests.bench

smoke-aws: $(READY) ## The product on the AWS account and Prefect server this shell is set up for: minutes, and cents
	@$(BIN)/python -m tests.smoke

lock: $(READY) ## Resolve the dependencies again
	$(BIN)/uv pip compile pyproject.toml --extra dev --extra hawk --python-version 3.11 --generate-hashes --universal \
	  --no-header --quiet --upgrade -o requirements.lock
	$(BIN)/uv pip compile pyproject.toml --python-version 3.11 --generate-hashes --universal --constraint requirements.lock \
	  --no-header --no-annotate --quiet -o worker_image/bake/requirements.lock

clean: ## Remove what the targets made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis logs dist *.egg-info
