# The targets set up .venv and skip finished steps; see scripts/setup_env.py.
# `make test ROS=jazzy` takes the wheels of ROS 2 Jazzy, in .venv-jazzy.
PYTHON ?= python3
ROS ?= kilted
VENV := $(if $(filter-out kilted,$(ROS)),.venv-$(ROS),.venv)
BIN := $(VENV)/bin
# On a sourced ROS, .venv is an overlay; without ROS nothing has to be sourced.
OVERLAY := $(if $(and $(ROS_DISTRO),$(AMENT_PREFIX_PATH)),. $(VENV)/local_setup.sh &&)
PYTEST := $(OVERLAY) OMP_NUM_THREADS=1 $(BIN)/python -m pytest
# Bytecode is kept even if the machine forbids it, because many processes import the same modules.
export PYTHONDONTWRITEBYTECODE =

# Tools that write locks and reports.
TOOLS := .venv-tools
LOCK := $(TOOLS)/bin/uv pip compile --quiet --no-config --universal --python-version 3.10 --generate-hashes \
	--custom-compile-command "make lock"
ROBOT := requirements.txt
REST := $(addprefix requirements-,$(addsuffix .txt,codecs dev serve lab))

.PHONY: demo real test nightly lint types docs cases robot setup lock sbom licences audit clean

demo: robot  ## caption the sample drive through the ROS 2 nodes, and compare with the target alone
	@$(OVERLAY) $(BIN)/crossspec replay rosbags/synthetic_drive --isolated --compare

real: robot  ## caption the same drive with a real language model, SmolLM2-135M, which is 93 MB more
	@$(BIN)/python -m pip --quiet --disable-pip-version-check install --require-hashes --no-deps -r locks/real.txt
	@test models/smol/model.safetensors -nt models/smol/adapter_model.safetensors || \
		$(BIN)/python scripts/make_smol.py
	@$(OVERLAY) $(BIN)/crossspec caption rosbags/synthetic_drive --target models/smol

test: setup  ## lint, types, pages and tests
	@$(MAKE) --no-print-directory lint docs
	@$(MAKE) --no-print-directory -j2 types cases

nightly: setup  ## lint, types and every test: it also trains, fuzzes, soaks and measures
	@$(MAKE) --no-print-directory lint types docs
	@$(PYTEST) -n 2 --dist loadgroup -m "not realtime"
	@$(OVERLAY) $(BIN)/python -m pytest -m realtime

lint:
	@mkdir -p build
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@test ! -x $(BIN)/lint-imports || PYTHONPATH=.:lab $(BIN)/lint-imports --no-cache
	@$(BIN)/deptry crossspec_ros lab/crossspec_lab launch
	@$(BIN)/pip-licenses --from=mixed --partial-match --fail-on="Affero;GPLv3" --format=json > build/licences.json

types:
	@$(BIN)/mypy

# From the root, so that README.md and the models' pages are checked as well. Python 3.10 has no Sphinx of this version.
docs:  ## build the pages in build/docs; a broken link is an error
	@test ! -x $(BIN)/sphinx-build || $(BIN)/sphinx-build -n -W -q -c docs -D root_doc=docs/index . build/docs

cases:
	@$(PYTEST) -n 3 --dist loadgroup -m "not nightly"

robot:  ## install the packages of a robot
	@$(PYTHON) scripts/setup_env.py robot $(ROS)

setup:  ## install everything
	@$(PYTHON) scripts/setup_env.py all $(ROS)

# Locked versions stay, unless `make lock UPGRADE="--upgrade-package aiohttp"` asks for newer ones.
# They must also work with the numpy 1 of an installed ROS, so the first step resolves with it.
lock: $(TOOLS)/made  ## write locks/ from requirements*.txt, with the hashes of the package index
	@mkdir -p build && cat locks/robot.txt locks/rest.txt > build/all.txt
	@echo numpy==1.26.4 > build/numpy1.txt
	@$(LOCK) build/numpy1.txt --no-annotate -o locks/numpy1.txt
	@grep -hvE '^(numpy|opencv|cv-bridge)' $(ROBOT) $(REST) >> build/numpy1.txt
	@$(LOCK) $(UPGRADE) build/numpy1.txt -o build/all.txt
	@$(LOCK) $(ROBOT) $(REST) -o build/all.txt
	@$(LOCK) -c build/all.txt $(ROBOT) -o locks/robot.txt
	@$(LOCK) -c build/all.txt $(REST) -o locks/rest.txt \
		$$(sed -nE 's/^([a-z0-9][a-z0-9._-]*)==[^ ]+ \\$$/--no-emit-package \1/p' locks/robot.txt)
	@$(LOCK) -c build/all.txt requirements-kilted.txt -o locks/kilted.txt
	@$(LOCK) -c build/all.txt requirements-jazzy.txt -o locks/jazzy.txt
	@$(LOCK) requirements-audit.txt -o locks/audit.txt
	@$(LOCK) --no-deps requirements-real.txt -o locks/real.txt

sbom: setup $(TOOLS)/made  ## list the installed packages, as CycloneDX, in build/sbom.json
	@mkdir -p build
	@$(TOOLS)/bin/cyclonedx-py environment --output-reproducible --output-format JSON -o build/sbom.json $(BIN)/python

licences: setup  ## write build/licences.md
	@mkdir -p build
	@$(BIN)/pip-licenses --from=mixed --format=markdown --output-file=build/licences.md

audit: $(TOOLS)/made  ## ask for known vulnerabilities of all locked packages; needs PyPI itself, not a mirror
	@mkdir -p build && for lock in $(sort $(wildcard locks/*.txt)); do echo $$lock; sed 's/+cpu / /' $$lock > build/audit.txt; \
	$(TOOLS)/bin/pip-audit --strict --disable-pip --require-hashes -r build/audit.txt || failed=1; done; test -z "$$failed"

$(TOOLS)/made: locks/audit.txt
	@$(PYTHON) -m venv --clear $(TOOLS) && touch $(TOOLS)/COLCON_IGNORE
	@$(TOOLS)/bin/python -m pip --quiet --disable-pip-version-check install --require-hashes --no-deps -r locks/audit.txt
	@touch $@

clean:  ## remove all made files and the virtual environments
	rm -rf .venv .venv-jazzy $(TOOLS) build install log .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
