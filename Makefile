# Two set-up commands: `make demo` and `make test`. PYTHON chooses the interpreter (>= 3.11).
# `make test-skyrl` tests the engine for Tinker servers against a real one, which needs PYTHON312 (>= 3.12).
PYTHON ?= python3
PYTHON312 ?= $(shell scripts/find_python312.sh)
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
SKYRL  := $(VENV)-skyrl

.PHONY: demo docs test test-package test-skyrl lint package clean

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt -e '.[local]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) install -c constraints.txt -e '.[dev,local,sandbox,tensorboard,travel,plots]'
	$(PIP) install --no-deps bfcl-eval==2026.3.23 mpmath==1.3.0
	touch $@

# the games of ALFWorld without what its agents need (no torch, no spaCy); two packages are built with cmake and a C++ compiler
$(VENV)/.installed-alfworld: $(VENV)/.installed-dev
	$(PIP) install --no-deps alfworld==0.4.2 textworld==1.7.0 tatsu==5.8.3 fast_downward_textworld==20.6.4 jericho==3.3.1 \
	  mementos==1.3.1 termcolor
	touch $@

demo: $(VENV)/.installed
	$(BIN)/genenv train demo --run-dir runs/demo

test: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest

# the server, in an environment of its own
$(SKYRL)/.installed: tests/skyrl/overrides.txt tests/skyrl/shims/torch.py tests/skyrl/shims/peft.py
	@test -n "$(PYTHON312)" || { echo "make test-skyrl: no Python >= 3.12 found; set PYTHON312" >&2; exit 1; }
	$(PYTHON312) -m venv $(SKYRL)
	$(SKYRL)/bin/python -m pip --disable-pip-version-check --quiet install uv
	UV_NATIVE_TLS=1 UV_SYSTEM_CERTS=1 $(SKYRL)/bin/uv pip install --quiet --python $(SKYRL)/bin/python --override tests/skyrl/overrides.txt \
	  'skyrl[tinker,jax]==0.4.0' aiohttp
	cp tests/skyrl/shims/*.py $(SKYRL)/lib/python3.*/site-packages/
	touch $@

test-skyrl: $(VENV)/.installed-dev $(SKYRL)/.installed
	$(PIP) install -c constraints.txt -e '.[tinker]'
	GENENV_SKYRL=$(SKYRL) OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/skyrl --durations=10 \
	  -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning  # sockets of the client

# the wheel and the source distribution, from the tree as it is
package: $(VENV)/.installed-dev
	rm -rf dist
	$(BIN)/python -m build --outdir dist . > /dev/null

# the wheel in empty environments: without torch on every Python that is here, with the extra local on PYTHON
test-package: package
	GENENV_WHEEL=$$(ls $(CURDIR)/dist/*.whl) GENENV_PYTHONS="$$(scripts/find_pythons.sh)" OMP_NUM_THREADS=1 \
	  $(BIN)/python -m pytest tests/package --durations=10

# the site of docs/, in build/site; a link or an anchor that leads nowhere is an error
docs: $(VENV)/.installed
	$(PIP) install -c constraints.txt -e '.[docs]'
	$(BIN)/mkdocs build --quiet

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) $(SKYRL) runs build dist
