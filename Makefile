# Each target sets up .venv by itself and does not repeat what is there; see scripts/setup_env.py.
# `make test ROS=jazzy` takes the wheels of ROS 2 Jazzy, in .venv-jazzy.
PYTHON ?= python3
ROS ?= kilted
VENV := $(if $(filter-out kilted,$(ROS)),.venv-$(ROS),.venv)
BIN := $(VENV)/bin
# On a sourced ROS, .venv is an overlay like any other; without ROS nothing needs to be sourced.
OVERLAY := $(if $(and $(ROS_DISTRO),$(AMENT_PREFIX_PATH)),. $(VENV)/local_setup.sh &&)

# What is only for those who change the pins, apart from what runs.
TOOLS := .venv-tools
LOCK := $(TOOLS)/bin/uv pip compile --quiet --no-config --universal --python-version 3.10 --generate-hashes \
	--custom-compile-command "make lock"
PACKAGES := requirements.txt requirements-dev.txt requirements-serve.txt requirements-lab.txt

.PHONY: demo real test setup lock sbom licences audit clean

demo: setup  ## caption the sample drive through the ROS 2 nodes, and compare with the target alone
	@$(OVERLAY) $(BIN)/crossspec replay rosbags/synthetic_drive --isolated --compare

real: setup  ## caption the same drive with a real language model, SmolLM2-135M, which is 93 MB more
	@$(BIN)/python -m pip --quiet --disable-pip-version-check install --require-hashes --no-deps -r locks/real.txt
	@test models/smol/model.safetensors -nt models/smol/adapter_model.safetensors || \
		$(BIN)/python scripts/make_smol.py
	@$(OVERLAY) $(BIN)/crossspec caption rosbags/synthetic_drive --target models/smol

# Hundreds of processes import the same modules, so bytecode is kept even where the machine says not to.
test: export PYTHONDONTWRITEBYTECODE =
test: setup  ## lint, types, tests
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(OVERLAY) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m "not nodes and not realtime"
	@$(OVERLAY) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m "nodes and not realtime"
	@$(OVERLAY) $(BIN)/python -m pytest -m realtime

setup:
	@$(PYTHON) scripts/setup_env.py $(ROS)

# Versions that are locked already stay, unless `make lock UPGRADE="--upgrade-package aiohttp"` asks for newer ones.
# What is locked has to fit beside the numpy 1 of an installed ROS, too: the first of two steps chooses it so.
lock: $(TOOLS)/made  ## write locks/ anew from requirements*.txt, with the hashes that the package index has
	@mkdir -p build && echo numpy==1.26.4 > build/numpy1.txt
	@$(LOCK) build/numpy1.txt --no-annotate -o locks/numpy1.txt
	@grep -hvE '^(numpy|opencv|cv-bridge)' $(PACKAGES) >> build/numpy1.txt
	@$(LOCK) $(UPGRADE) build/numpy1.txt -o locks/python.txt
	@$(LOCK) $(PACKAGES) -o locks/python.txt
	@$(LOCK) -c locks/python.txt requirements-kilted.txt -o locks/kilted.txt
	@$(LOCK) -c locks/python.txt requirements-jazzy.txt -o locks/jazzy.txt
	@$(LOCK) requirements-audit.txt -o locks/audit.txt
	@$(LOCK) --no-deps requirements-real.txt -o locks/real.txt

sbom: setup $(TOOLS)/made  ## list what is installed, as CycloneDX, in build/sbom.json
	@mkdir -p build
	@$(TOOLS)/bin/cyclonedx-py environment --output-reproducible --output-format JSON -o build/sbom.json $(BIN)/python

licences: setup  ## write build/licences.md
	@$(BIN)/python scripts/licences.py

audit: $(TOOLS)/made  ## ask for known vulnerabilities of all that is in locks/; needs PyPI itself, not a mirror
	@mkdir -p build && for lock in $(sort $(wildcard locks/*.txt)); do echo $$lock; sed 's/+cpu / /' $$lock > build/audit.txt; \
	$(TOOLS)/bin/pip-audit --strict --disable-pip --require-hashes -r build/audit.txt || failed=1; done; test -z "$$failed"

$(TOOLS)/made: locks/audit.txt
	@$(PYTHON) -m venv --clear $(TOOLS) && touch $(TOOLS)/COLCON_IGNORE
	@$(TOOLS)/bin/python -m pip --quiet --disable-pip-version-check install --require-hashes --no-deps -r locks/audit.txt
	@touch $@

clean:  ## remove all that was made here, the virtual environments too
	rm -rf .venv .venv-jazzy $(TOOLS) build install log .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
