VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
# The version that the suite runs on; another one: make TORCH='torch==2.8.0'. Any CPU build is enough.
TORCH ?= torch==2.13.0
EXTRAS ?= dev

.PHONY: demo test test-all lint format bench clean

$(BIN)/snn-ipu: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet $(TORCH) numpy
	$(BIN)/pip install --quiet --editable .[train]
	touch $@

$(VENV)/dev: $(BIN)/snn-ipu
	$(BIN)/pip install --quiet $(TORCH) --editable .[$(EXTRAS)]
	touch $@

demo: $(BIN)/snn-ipu  ## train a spiking network on 6,000 real images; pictures land in runs/demo
	rm -rf runs/demo
	$(BIN)/snn-ipu train --model dsnn --data fashion-mnist-mini --epochs 5 --out runs/demo

test: $(VENV)/dev lint  ## everything that .ci/run runs
	OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -q -n auto

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $$(git ls-files '*.cpp' '*.hpp' '*.h')

format: $(VENV)/dev
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $$(git ls-files '*.cpp' '*.hpp' '*.h')

bench: $(VENV)/dev  ## speed and memory beside the peers that are installed
	$(BIN)/pip install --quiet $(TORCH) --editable .[bench]
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build dist runs *.egg-info
