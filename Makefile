# Every target makes its environment first; nothing but python3 (>= 3.11) is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORPUS ?= python:

.PHONY: help demo test test-all lint format parity-install tpu-install measured-run \
	compile-configs plan-table compare-peer clean

help:
	@echo "make demo                      pretrain a tiny BERT on this machine's own English text"
	@echo "make demo CORPUS='path/*.txt'  the same on your text"
	@echo "make test                      run the test suite, but for its slowest tests"
	@echo "make test-all                  run all of it"
	@echo "make lint                      format check, lint, types"
	@echo "make parity-install            add PyTorch, transformers and Beam for their tests"
	@echo "make tpu-install               add the TPU compiler, for the next three; none needs a TPU"
	@echo "make compile-configs           compile every config for pods for its slice (hours)"
	@echo "make plan-table                plan every row of Table 1 on its published chips (hours)"
	@echo "make compare-peer              compile transformers' step beside ours, with parity-install"
	@echo "make measured-run              the recorded run, 2.5 hours (needs WIKI= and BOOKS=)"
	@echo "make clean                     remove the environment and runs/"

$(VENV)/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 14) else \
	  "bert_lamb needs Python 3.11 to 3.13, but $(PYTHON) is %s; run make PYTHON=python3.12 ..." % sys.version.split()[0])'
	@echo "Making the environment in $(VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: $(VENV)/installed
	@BIN=$(BIN) scripts/demo.sh '$(CORPUS)'

test: $(VENV)/installed
	@$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

test-all: $(VENV)/installed
	@$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder -m 'slow or not slow'

lint: $(VENV)/installed
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

format: $(VENV)/installed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

parity-install: $(VENV)/installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,parity,beam]'

tpu-install: $(VENV)/installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,tpu]'

compile-configs: tpu-install
	@$(BIN)/python scripts/compile_configs.py --output docs/results/configs_on_pods

plan-table: tpu-install
	@$(BIN)/python scripts/plan_table.py --output docs/results/plan_table1

compare-peer: tpu-install parity-install
	@JAX_PLATFORMS=cpu $(BIN)/python scripts/compare_peer.py --output docs/results/peer_flax

measured-run: $(VENV)/installed
	@BIN=$(BIN) scripts/measured_run.sh '$(WIKI)' '$(BOOKS)'

clean:
	rm -rf $(VENV) runs
