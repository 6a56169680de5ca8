# `make help` lists the targets. Variables can be set on the command line: make demo RUN=runs/mine

PYTHON ?= python3
VENV ?= .venv
RUN ?= runs/demo
# Where torch comes from. Empty: from pip's own configuration, which on Linux usually means PyPI and
# its large CUDA build. For the small CPU build: TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
PYTEST_ARGS ?= -n 2 --dist loadfile

LOCK := requirements/lock-cpu.txt
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check
SYSTEM_PACKAGES := libegl1 libgl1 libosmesa6 bubblewrap chromium

# Small matrices: one thread per process is fastest, and results don't depend on the machine's cores.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help install demo test test-slow lint format lock metaworld system-deps clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP) ## make .venv with the locked releases and this checkout in it
	@echo "Installed. In this shell:  . $(BIN)/activate  and then  embodied-icrl --help"

$(STAMP): pyproject.toml $(LOCK)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
ifneq ($(TORCH_INDEX),)
	$(PIP) install --index-url $(TORCH_INDEX) "$$(grep '^torch==' $(LOCK))"
endif
	$(PIP) install --quiet -r $(LOCK)
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(STAMP) ## train, evaluate and film an agent that learns in context (20 minutes on 2 cores)
	$(BIN)/embodied-icrl train experiment=demo run=$(RUN) resume=auto
	$(BIN)/embodied-icrl evaluate run=$(RUN) context=all
	$(BIN)/embodied-icrl video run=$(RUN) n_trials=2 attention=true
	$(BIN)/embodied-icrl video run=assets/checkpoints/house_nav_rays n_episodes=8 output=$(RUN)/videos/house.mp4
	@echo
	@echo "The curve, episode by episode, and the videos:"
	@find $(RUN)/evaluation $(RUN)/figures $(RUN)/videos -name '*.png' -o -name '*.mp4' | sort
	@echo
	@echo "To go on in this shell:  . $(BIN)/activate  and then  embodied-icrl --help"

test: $(STAMP) ## run the tests, the slow ones left out
	$(BIN)/python -m pytest -m "not slow" $(PYTEST_ARGS)

test-slow: $(STAMP) ## run the slow tests
	$(BIN)/python -m pytest -m slow

lint: $(STAMP) ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP) ## put the code into its one format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Two that may be installed don't resolve beside the rest, see pyproject.toml.
lock: ## write the releases that are in .venv into the lock
	{ sed -n '/^#/p' $(LOCK); \
	  $(PIP) freeze --exclude embodied-icrl --exclude metaworld --exclude habitat-sim \
	  | sed 's/^\(torch==[^+]*\)+.*/\1/'; } > $(LOCK).new
	mv $(LOCK).new $(LOCK)

metaworld: install ## install Meta-World without its pins (it asks for an older MuJoCo than it needs)
	$(PIP) install --no-deps 'metaworld>=3.1,<4'
	grep -v '^torch' $(LOCK) | $(PIP) install -c /dev/stdin scipy imageio

system-deps: ## install the system packages: GL for rendering, bubblewrap, chromium (Debian, Ubuntu)
	@missing=""; for name in $(SYSTEM_PACKAGES); do \
	  dpkg -s $$name 2>/dev/null | grep -q '^Status: install ok installed' || missing="$$missing $$name"; \
	done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then \
	  echo "no apt-get here: install the equivalents of$$missing"; exit 1; fi; \
	if [ "$$(id -u)" = 0 ]; then sudo=""; else sudo="sudo"; fi; \
	$$sudo apt-get -qq update && \
	$$sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y $$missing

clean: ## remove caches and build outputs; runs and .venv stay
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
