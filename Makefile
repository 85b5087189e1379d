# Each target sets up .venv by itself and does not repeat what is there; see scripts/setup_env.py.
# `make test ROS=jazzy` takes the wheels of ROS 2 Jazzy, in .venv-jazzy.
PYTHON ?= python3
ROS ?= kilted
VENV := $(if $(filter-out kilted,$(ROS)),.venv-$(ROS),.venv)
BIN := $(VENV)/bin
# On a sourced ROS, .venv is an overlay like any other; without ROS nothing needs to be sourced.
OVERLAY := $(if $(and $(ROS_DISTRO),$(AMENT_PREFIX_PATH)),. $(VENV)/local_setup.sh &&)

.PHONY: demo test setup clean

demo: setup  ## caption the sample drive through the ROS 2 nodes, and compare with the target alone
	@$(OVERLAY) $(BIN)/crossspec replay rosbags/synthetic_drive --isolated --compare

test: setup  ## lint, types, tests
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(OVERLAY) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not realtime"
	@$(OVERLAY) $(BIN)/python -m pytest -m realtime

setup:
	@$(PYTHON) scripts/setup_env.py $(ROS)

clean:  ## remove all that was made here, the virtual environments too
	rm -rf .venv .venv-jazzy build install log .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
