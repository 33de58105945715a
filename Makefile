# `make run` and `make test` need Python 3.11 or newer and nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: run test test-slow test-cluster test-portable test-lowest test-kernels fuzz audit bench peers docs lint clean

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Engram needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "torch==2.13.0"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e . --group dev
	@touch $(STAMP)

# One of the paper's settings of few examples: 20 tasks of 600. Learning curves are measured on a
# tenth of the test images, for evaluation is most of the work here.
run: $(STAMP)
	$(BIN)/engram run permuted-mnist-600 van a-gem mega-i mega-ii --seeds 5 --set curve_images=1000

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -m "not slow" -n auto

test-slow: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/pytest -m slow

# What floating-point arithmetic decides, as other CPUs compute it: with the instructions of this one,
# with AVX2 and with SSE4, on one thread and on two (which wait asleep, for there are other workers).
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_CBWR=AVX2
SSE4 := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE
NUMERICAL := tests/engine tests/gradients tests/lab tests/penalties tests/rules $(wildcard tests/test_*.py)
test-portable: $(STAMP)
	@for threads in 1 2; do for instructions in "" "$(AVX2)" "$(SSE4)"; do \
	  echo "On $$threads of its threads, with $${instructions:-its own instructions}:"; \
	  env $$instructions OMP_NUM_THREADS=$$threads OMP_WAIT_POLICY=PASSIVE \
	    $(BIN)/pytest -m "numerical and not slow" -n auto $(NUMERICAL) || exit 1; \
	done; done

# The generated cases of the tests, but others every time; `make fuzz SEED=N` makes those of N again.
fuzz: $(STAMP)
	@seed=$${SEED:-$$($(BIN)/python -c 'import secrets; print(secrets.randbelow(2**32))')}; \
	echo "The same cases again: make fuzz SEED=$$seed"; \
	ENGRAM_FUZZ_SEED=$$seed OMP_NUM_THREADS=1 $(BIN)/pytest -m "not slow" -n auto tests/fuzz

# A part of the tests with the lowest versions that pyproject.toml promises; by hand, before a release.
LOWEST := .venv-lowest
$(LOWEST)/.installed: pyproject.toml constraints.txt tools/lowest.py
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python tools/lowest.py > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  -c $(LOWEST)/lowest.txt "torch==2.13.0"
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  -c $(LOWEST)/lowest.txt -e .[images,tables,tensorboard] pytest pytest-xdist hypothesis quadprog scipy
	@touch $@

test-lowest: $(LOWEST)/.installed
	OMP_NUM_THREADS=1 $(LOWEST)/bin/pytest -m "not slow" -n auto tests/app tests/data tests/gradients \
	  tests/memory tests/report tests/rules tests/studies tests/test_learner.py tests/test_files.py \
	  tests/lab/test_own_data_table_refused.py

# A real Ray cluster on this machine, on the loopback alone, and jobs of submitit: an environment of its own.
CLUSTER := .venv-cluster
$(CLUSTER)/.installed: pyproject.toml constraints.txt
	test -x $(CLUSTER)/bin/python || $(PYTHON) -m venv $(CLUSTER)
	$(CLUSTER)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(CLUSTER)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "torch==2.13.0"
	$(CLUSTER)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  -e .[ray,slurm] pytest
	@touch $@

test-cluster: $(CLUSTER)/.installed
	OMP_NUM_THREADS=1 RAY_USAGE_STATS_ENABLED=0 $(CLUSTER)/bin/pytest tests/cluster

# Kernels for GPUs, played through by Triton's interpreter: hundreds of megabytes, so not part of `test`.
KERNELS := .triton
$(KERNELS)/.installed: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade \
	  --target $(KERNELS) "triton==3.9.0"
	@touch $@

test-kernels: $(KERNELS)/.installed
	PYTHONPATH=$(KERNELS) OMP_NUM_THREADS=1 $(BIN)/pytest tests/engine -n 0

# Known flaws of the packages in our environment. It needs the network, and fails without: it asks the
# OSV database, as a package index that has no such data answers that there are no flaws.
AUDIT := .venv-audit
$(AUDIT)/.installed:
	test -x $(AUDIT)/bin/python || $(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check "pip-audit>=2.7"
	@touch $@

audit: $(STAMP) $(AUDIT)/.installed
	PIPAPI_PYTHON_LOCATION=$(CURDIR)/$(BIN)/python $(AUDIT)/bin/pip-audit --local --skip-editable \
	  --progress-spinner off --vulnerability-service osv

# What steps cost, on a GPU where there is one.
bench: $(STAMP)
	$(BIN)/engram bench

# The same work in others' libraries, which live in an environment of their own.
PEERS := .venv-peers
$(PEERS)/.installed: benchmarks/peers/requirements.txt constraints.txt pyproject.toml
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  -r benchmarks/peers/requirements.txt -e .
	@touch $@

peers: $(STAMP) $(PEERS)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/peers/compare.py --peer-python $(PEERS)/bin/python
	OMP_NUM_THREADS=1 $(PEERS)/bin/engram bench loop --device cpu

# Everything generated: the pages of results, and the blocks of docs/ and README.md.
docs: $(STAMP)
	$(BIN)/python -m tools.docs results/*.jsonl --pages docs
	$(BIN)/python -m tools.docs.times results/*.jsonl
	$(BIN)/python -m tools.docs.reliability
	$(BIN)/python -m tools.docs.cluster
	$(BIN)/python -m tools.docs.memory
	$(BIN)/python -m tools.docs.production --tables

clean:
	rm -rf $(VENV) $(LOWEST) $(CLUSTER) $(PEERS) $(AUDIT) $(KERNELS) .mypy_cache .ruff_cache .hypothesis
