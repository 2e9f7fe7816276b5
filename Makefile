# The same targets serve a person and CI. `make` alone explains them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= /usr/bin/python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

# What numalab needs from the distribution, by purpose.
PACKAGES := \
  qemu-system-x86 seabios libvirt-daemon libvirt-daemon-system libvirt-clients \
  libvirt-dev pkg-config gcc python3-dev python3-venv \
  make ccache flex bison bc patch libelf-dev libssl-dev git gpg linux-source-6.12 xz-utils zstd lz4 kmod cpio \
  mmdebstrap uidmap erofs-utils e2fsprogs debian-archive-keyring \
  ninja-build libglib2.0-dev libpixman-1-dev libfdt-dev libseccomp-dev dpkg-dev bzip2 \
  trace-cmd shellcheck numactl libnuma-dev chromium fonts-dejavu-core

# What the tests boot.
TEST_KERNELS := debian-6.12 debian-6.12-undo-group-construction debian-6.12-show-predicted debian-6.12-xfs \
	debian-6.12-virtme
# The guests that `make test` boots beside the others, so that both CPUs end at about the same time.
LATER_GUESTS := tests/guest/test_topologies.py tests/guest/test_matrix.py
# What runs in the test bed: everything, or as `make test` has it.
TEST_BED := tests/testbed
SHORT_BED := tests/testbed/test_pinned_guest.py

.PHONY: help setup demo check test test-kvm test-bed test-schedulers fuzz bench bench-short bench-suite site sbom audit clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

setup: $(VENV)/.ready ## Install what is missing: Debian packages, virtual environment (idempotent)

$(VENV)/.ready: pyproject.toml requirements-build.lock requirements-dev.lock Makefile
	@if ! command -v apt-get >/dev/null; then \
	  echo "This is not Debian. Install what these packages hold, then: mkdir -p $(VENV) && touch $(VENV)/.packages && make setup"; \
	  echo "  $(PACKAGES)"; test -e $(VENV)/.packages; \
	fi
	@missing=$$(for p in $(PACKAGES); do \
	    dpkg-query -W -f='$${db:Status-Status}' $$p 2>/dev/null | grep -qx installed || echo $$p; done); \
	if command -v apt-get >/dev/null && [ -n "$$missing" ]; then \
	  echo "installing:" $$missing; \
	  for i in $$(seq 180); do \
	    said=$$($(SUDO) env LC_ALL=C apt-get update -q 2>&1 >/dev/null) && break; \
	    case "$$said" in *"Could not get lock"*) sleep 5;; *) echo "$$said" >&2; exit 1;; esac; \
	  done; \
	  $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=900 install -y -q --no-install-recommends $$missing >/dev/null; \
	fi
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the Python packages of requirements-dev.lock"
	@$(PIP) --require-hashes --only-binary :all: -r requirements-build.lock
	@$(PIP) --require-hashes --only-binary :all: --no-binary libvirt-python --no-build-isolation -r requirements-dev.lock
	@$(PIP) --no-index --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup ## The main job: a study of two kernels on real VMs, and its report
	@$(BIN)/numalab run studies/group-construction.toml

check: setup ## Format, lint, types, layers, shell scripts, text
	@$(BIN)/ruff format --check --quiet lab tests .ci docs || { echo "run: $(BIN)/ruff format lab tests .ci"; exit 1; }
	@$(BIN)/ruff check --quiet lab tests .ci docs
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo >/dev/null || $(BIN)/lint-imports --no-logo
	@find images workloads lab -type f -not -name '*.py*' -exec grep -lE '^#!/bin/sh' {} + \
	  | xargs --no-run-if-empty shellcheck
	@$(BIN)/python .ci/text_rules.py

test: setup ## All tests: pure, golden, real boots, a real browser, a pinned guest under KVM
	@$(BIN)/numalab image build base bench host >/dev/null
	@$(BIN)/numalab kernel build $(TEST_KERNELS) >/dev/null
	@$(BIN)/numalab emulator build >/dev/null
	@mkdir -p build # a guest takes one CPU; on the other: what boots none, then the bed, then some guests
	@{ $(BIN)/pytest tests/unit tests/fuzz tests/browser; unit=$$?; \
	  nice $(BIN)/pytest $(SHORT_BED); bed=$$?; $(BIN)/pytest $(LATER_GUESTS); later=$$?; \
	  exit $$((unit ? unit : bed ? bed : later)); } >build/other.log 2>&1 & other=$$!; \
	  $(BIN)/pytest tests/guest $(LATER_GUESTS:%=--ignore=%); guest=$$?; wait $$other; other=$$?; \
	  cat build/other.log; exit $$((guest ? guest : other))

test-kvm: setup ## Mode kvm, in a virtual NUMA host with a working KVM (TCG emulates SVM)
	@$(BIN)/numalab image build base host >/dev/null
	@$(BIN)/numalab kernel build debian-6.12 >/dev/null
	@$(BIN)/numalab emulator build >/dev/null
	@$(BIN)/pytest $(TEST_BED)

test-bed: TEST_BED := $(SHORT_BED)
test-bed: test-kvm ## The same, one pinned guest only and how it lies by /proc (`make test` has it too)

test-schedulers: setup ## Schedulers (sched_ext) in guests; builds their kernel: 13 min of CPU, clang-19 and dwarves
	@$(BIN)/numalab image build base >/dev/null
	@$(BIN)/pytest tests/schedulers

fuzz: setup ## Hostile input of every kind, by its seed; TIME=10m, SEED=, CASES=, ONLY=, JOBS=
	@PYTHONPATH=tests $(BIN)/python -m fuzz $(ONLY) $(if $(TIME),--time $(TIME)) \
	  $(if $(SEED),--seed $(SEED)) $(if $(CASES),--cases $(CASES)) $(if $(JOBS),--jobs $(JOBS))

bench: setup ## Speed, beside a reference; writes docs/results/speed.*; PARTS=
	@PYTHONPATH=tests $(BIN)/python -m bench $(PARTS)

bench-short: setup ## The same in 3 minutes: fails on errors only, writes nothing
	@PYTHONPATH=tests $(BIN)/python -m bench --form short $(PARTS)

bench-suite: setup ## The same with `make check test`, from warm and from bare caches
	@PYTHONPATH=tests $(BIN)/python -m bench --form suite $(PARTS)

site: setup ## The documentation as a web site, in build/site
	@$(BIN)/python docs/site/stage.py build/site-source
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

sbom: setup ## The wheel's bill of materials, numalab.cdx.json, from requirements.lock
	@$(BIN)/python .ci/sbom.py

audit: setup ## Known vulnerabilities of the Python packages, security updates this machine lacks
	@$(BIN)/python .ci/audit.py $(PACKAGES)

clean: ## Remove what was built here (not the cache of kernels and images)
	@rm -rf build $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache *.egg-info
