# Two commands do everything on a fresh machine: `make serve` and `make test`.
VENV   := .venv
PYTHON := $(VENV)/bin/python
# Makes the environments; .ci/run sets it to an optimised one.
PYTHON3 ?= python3

# Where this is set, each broker that a test starts would compile its modules again, and each worker all tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: serve check test proof test-containers format clean

serve: $(VENV)/.installed
	$(VENV)/bin/echoless serve

# The quick tests sync files thousands of times: they are kept in memory where 1 GB of it may be used for files.
# Each run has a directory of its own, which no other run knows of and which it removes, however it ends.
IN_MEMORY := $(shell df --output=avail /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 1000000 { print "/dev/shm" }')
IN_OWN_DIRECTORY := own=$$(mktemp -d -p "$(IN_MEMORY)" echoless-XXXXXX) || exit; trap 'rm -rf "$$own"' EXIT; \
	trap 'exit 130' INT; trap 'exit 143' TERM; TMPDIR=$$own

check: $(VENV)/.installed-dev
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	$(IN_OWN_DIRECTORY) $(PYTHON) -m pytest -q -n 2 --hypothesis-profile=quick -o tmp_path_retention_policy=failed -m "not slow and not kafka and not clients and not crash and not cluster and not spark and not browser"

test: $(VENV)/.installed-dev
	$(PYTHON) -m tests.toolchain
	$(PYTHON) -m pytest -n 3 --dist loadfile --no-loadscope-reorder -ra --durations=40

MINUTES := 60
proof: $(VENV)/.installed-dev  # every long proof; the figures go into docs/proofs.md
	$(PYTHON) -m tests.toolchain
	$(PYTHON) -m tests.proofs --minutes $(MINUTES)

test-containers: $(VENV)/.installed-dev .cache/podman-compose/.installed
	$(PYTHON) -m containers.images
	$(PYTHON) -m pytest containers

format: $(VENV)/.installed-dev
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

$(VENV)/bin/python:
	$(PYTHON3) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml $(VENV)/bin/python
	rm -rf echoless.egg-info  # of an installation before 0.3.0: pytest would find its plugin there
	$(PYTHON) -m pip install -q --disable-pip-version-check -e .
	$(PYTHON) -m compileall -q src/echoless src/echoless/*/
	touch $@

$(VENV)/.installed-dev: pyproject.toml $(VENV)/.installed
	$(PYTHON) -m pip install -q --disable-pip-version-check -e '.[dev,spark]'
	touch $@

.cache/podman-compose/.installed:
	$(PYTHON3) -m venv .cache/podman-compose
	.cache/podman-compose/bin/pip install -q --disable-pip-version-check podman-compose
	touch $@

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache
