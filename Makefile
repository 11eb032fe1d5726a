# make demo, make test: all a newcomer needs. Each sets up .venv by itself.
PYTHON ?= python3
ENV = .venv
BIN = $(ENV)/bin
FRAMEWORKS = build/frameworks

.PHONY: setup demo test check wheel docs slow fuzz faults mutants clean

setup: $(ENV)/ready

$(ENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(ENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

demo: setup
	$(BIN)/adamatch demo --overwrite
	@echo "the command is $(BIN)/adamatch; to call it adamatch: source $(BIN)/activate"

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: check
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

wheel: setup
	$(BIN)/python tests/wheel.py

# The documentation, into build/site; a link that leads nowhere is an error.
docs: $(ENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

$(ENV)/docs: $(ENV)/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	touch $@

slow: setup $(FRAMEWORKS)/ready
	$(BIN)/pytest -m slow

# The newest torch with other people's training frameworks, for the examples that use them: minutes, and gigabytes.
$(FRAMEWORKS)/ready: pyproject.toml
	$(PYTHON) -m venv $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade -e . \
		torch torchvision timm lightning accelerate transformers
	touch $@

fuzz: setup
	cd tests && ../$(BIN)/python -m fuzz

# Each write, sync, rename and link of a command fails or kills it; workers of a grid are killed, its files damaged.
faults: setup
	cd tests && ../$(BIN)/python -m faults && ../$(BIN)/python -m faults.grid

mutants: setup
	$(BIN)/python tests/mutants/run.py
	$(BIN)/python tests/mutants/machine.py

clean:
	rm -rf $(ENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
