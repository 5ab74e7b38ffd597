# make demo · make test · make test-all · make bench. Needs Python 3.11 or newer and make, nothing else.

VENV ?= .venv
DEVICE ?=
# One job more than processors, up to four: many tests wait for a browser or another process
JOBS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); echo $$((n < 4 ? n + 1 : 4)))
ARGS ?=
TORCH := torch==2.13.0
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
RUN := $(VENV)/bin/python

.PHONY: help demo test test-all test-with lint bench bench-gpu figures recordings handouts handout-students site format clean bench-recorded mutants

help:
	@echo "make demo               install into $(VENV) and open the page"
	@echo "make test               install, lint, pytest          (DEVICE=cuda: tests of exact decoding on a GPU; JOBS=1: no parallel tests)"
	@echo "make test-all           the same with slow tests, which rarely fail"
	@echo "make test-with          the library's tests in another environment (PYTHON_ENV=FOLDER)"
	@echo "make mutants            plant known faults, one after another; a test must fail for each (some minutes)"
	@echo "make bench              measure this machine           (ARGS=\"--limit 10 --temperatures 0\")"
	@echo "make bench-gpu          test and measure a GPU; the results are in runs/gpu/all/summary.md"
	@echo "make bench-recorded     measure the results that the tab Benchmark shows first, on a quiet machine"
	@echo "make figures            measure and write the tables of README and docs, on a quiet machine"
	@echo "make recordings         make the shipped recordings again, on a quiet machine"
	@echo "make handouts           write the shipped recordings as single-file pages into runs/handouts"
	@echo "make handout-students   write the exercise sheet without solutions into runs/jakiro-exercises.zip"
	@echo "make site               write a static site of lesson, recordings and benchmark into runs/site"
	@echo "make format             format the code with ruff"

demo: $(VENV)/.requirements
	$(RUN) app.py $(ARGS)

# Tests start many processes; without cached bytecode each would compile its imports
unexport PYTHONDONTWRITEBYTECODE

PYTEST = $(if $(DEVICE),JAKIRO_TEST_DEVICE=$(DEVICE)) $(RUN) -m pytest --numprocesses $(JOBS) --dist worksteal

# Tests run in parallel, so threads that spin at barriers would slow down other tests. Tests of threads set their own
# number, and make test-all uses the default
test test-all: export OMP_WAIT_POLICY ?= PASSIVE
test: export OMP_NUM_THREADS ?= 1
test: lint
	$(PYTEST) -m "not rare" $(ARGS)

test-all: lint
	$(PYTEST) $(ARGS)

# Tests of the library in another environment, such as one with an older torch and without the page's packages
test-with:
	@test -x "$(PYTHON_ENV)/bin/python" || { echo "Name an environment: make test-with PYTHON_ENV=FOLDER"; exit 1; }
	OMP_NUM_THREADS=1 $(PYTHON_ENV)/bin/python -m pytest -m "not rare" $(ENGINE_TESTS) $(ARGS)

ENGINE_TESTS := tests/core tests/drafters tests/decode tests/backends tests/heads tests/ops tests/models tests/training

lint: $(VENV)/.requirements-dev
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(VENV)/bin/lint-imports --no-cache --no-logo
	@if [ -x node_modules/.bin/prettier ]; then npm run --silent check; \
	else echo "Skipped: format of JavaScript and CSS, and whether assets/bundle is up to date (needs Node; run npm install)"; fi
	$(RUN) -m tests.check_structure
	$(VENV)/bin/basedpyright --pythonpath $(RUN)

mutants: $(VENV)/.requirements-dev
	$(RUN) -m tests.mutants $(ARGS)

bench: $(VENV)/.requirements-dev
	$(RUN) -m jakiro bench $(ARGS)

# All calls of tests/gpu/README.md, with the packages of this environment
bench-gpu: $(VENV)/.requirements-dev
	$(RUN) -m tests.gpu all $(ARGS)

bench-recorded: $(VENV)/.requirements
	$(RUN) -m jakiro bench --methods autoregressive,jakiro --nodes auto --temperatures 0,1 --limit 16 \
		--max-new-tokens 64 --out runs/benchmark $(ARGS)
	mkdir -p assets/benchmark
	cp runs/benchmark/bench.json assets/benchmark/bench.json

FIGURES := $(RUN) -m jakiro bench --methods-from lab --methods
FIGURES_LIMIT ?= 40
CODER := qwen2.5-coder-0.5b-instruct
MAKERS := --temperatures 0.7 --top-p 0.8 --top-k 20

figures: $(VENV)/.requirements-dev
	$(RUN) -m pip install --quiet --disable-pip-version-check "llama-cpp-python>=0.3.36"
	$(FIGURES) autoregressive,jakiro,jakiro+prompt_lookup,llama-cpp,llama-cpp-lookup --nodes auto \
		--limit $(FIGURES_LIMIT) --max-new-tokens 64 --out runs/figures/speed
	$(FIGURES) autoregressive,jakiro,llama-cpp --nodes auto $(MAKERS) \
		--limit $(FIGURES_LIMIT) --max-new-tokens 64 --out runs/figures/speed-makers
	$(FIGURES) autoregressive,jakiro,jakiro+prompt_lookup,llama-cpp,llama-cpp-lookup --nodes auto --target $(CODER) \
		--limit $(FIGURES_LIMIT) --max-new-tokens 96 --out runs/figures/coder
	$(FIGURES) autoregressive,jakiro,llama-cpp --nodes auto --target $(CODER) $(MAKERS) --repetition-penalty 1.1 \
		--limit $(FIGURES_LIMIT) --max-new-tokens 96 --out runs/figures/coder-makers
	$(FIGURES) autoregressive,jakiro --nodes auto --prompts assets/prompts/adversarial.jsonl \
		--max-new-tokens 48 --out runs/figures/adversarial
	$(RUN) -m jakiro evaluate --limit 80 --out runs/figures/tau.json
	$(RUN) -m lab.figures --take runs/figures --write README.md docs/performance.md docs/training.md

recordings: $(VENV)/.requirements
	$(RUN) -m app.tools.record
	$(RUN) -m app.tools.record_lesson --methods-from lab.published

handouts: $(VENV)/.requirements
	$(RUN) -m app.tools.replay $(ARGS)

handout-students: $(VENV)/.requirements
	$(RUN) -m app.tools.students $(ARGS)

site: $(VENV)/.requirements
	$(RUN) -m app.tools.site $(ARGS)

format: $(VENV)/.requirements-dev
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

clean:
	rm -rf $(VENV)

# Stamp files record the installed packages, so that a second make is quick
$(VENV)/.torch:
	@test -n "$(PYTHON)" || { echo "Jakiro needs Python 3.11 or newer; no such version was found. Try: make PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Jakiro needs Python 3.11 or newer; $(PYTHON) is `$(PYTHON) --version 2>&1`."; exit 1; }
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV) \
		|| { rm -rf $(VENV); echo "Python could not create $(VENV); on Debian and Ubuntu install python3-venv."; exit 1; }
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-compile $(TORCH)
	@touch $@

# The pins of requirements.txt without its torch, which is the one for Spaces
$(VENV)/pins.txt: requirements.txt $(VENV)/.torch
	@grep -v '^torch==' requirements.txt > $@

$(VENV)/.requirements: $(VENV)/pins.txt
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-compile $(TORCH) -r $<
	@touch $@

$(VENV)/.requirements-dev: requirements-dev.txt $(VENV)/pins.txt
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-compile $(TORCH) -r $(VENV)/pins.txt -r requirements-dev.txt
	@touch $(VENV)/.requirements $@
