PYTHON ?= python3

.PHONY: help build test test-all sanitize fuzz chaos lint format docs pictures bench wheels wheel-aarch64 slim sdist lowest mujoco wheel-tools clean

help: ## show this list
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

build: ## install in place with everything a developer needs (torch-free)
	$(PYTHON) -m pip install -e '.[dev]'

test: ## the tests that a change must pass
	$(PYTHON) -m pytest

test-all: ## those, and the slow ones
	$(PYTHON) -m pytest -m "slow or not slow"

sanitize: ## the C core under AddressSanitizer and UBSan, its atomics under ThreadSanitizer
	$(PYTHON) tests/src/sanitize.py

fuzz: ## a minute of coverage-guided fuzzing of the checkpoint reader (extra: dev)
	$(PYTHON) tests/checkpoints/fuzz_checkpoint.py --seconds 60

chaos: ## an hour of training with a fault every ten seconds, beside the same one left in peace
	$(PYTHON) -m benchmarks.reliability.chaos

lint: ## ruff, mypy, and the check of the English of pages and docstrings
	ruff check .
	ruff format --check .
	mypy
	$(PYTHON) docs/scripts/check_prose.py

format: ## let ruff format the code
	ruff check --fix .
	ruff format .

docs: ## remake what is made from the code, and build the site in build/site (extra: docs)
	$(PYTHON) docs/scripts/make_reference.py
	$(PYTHON) docs/scripts/make_keywords.py
	$(PYTHON) docs/scripts/draw_architecture.py
	$(PYTHON) docs/scripts/draw_how_es_works.py
	$(PYTHON) -m sphinx -W --keep-going -q -b html docs build/site

# Humanoid-v5 trains for hours, so its picture stays unless HUMANOID names a run folder
pictures: ## draw README's and the pages' pictures, two minutes; Humanoid-v5's of HUMANOID, games of GAMES, run folders (extras: all)
	$(PYTHON) docs/scripts/draw_architecture.py
	$(PYTHON) docs/scripts/draw_how_es_works.py
	$(PYTHON) -m benchmarks.learning.comparison
	rm -rf build/pictures build/gallery
	$(PYTHON) -m fastes train HalfCheetah-v5 --seed 2 --target-return none --runs build/pictures --quiet
	PYTHONPATH=docs/scripts $(PYTHON) -m fastes gallery build/pictures $(HUMANOID) --out build/gallery --seconds 7 --width 420 \
		--wrapper light_robot:LightRobot --env-kwargs width=420 height=236
	cp build/gallery/HalfCheetah-v5.gif docs/pictures
	$(if $(HUMANOID),cp build/gallery/Humanoid-v5.gif docs/pictures)
	$(if $(GAMES),$(PYTHON) -m fastes gallery $(GAMES) --out build/gallery --width 200)
	$(if $(GAMES),cd build/gallery && cp ALE-Freeway-v5.gif ALE-Pong-v5.gif ALE-BeamRider-v5.gif ../../docs/pictures)

bench: ## kernels and throughput, each against a baseline in the same run
	$(PYTHON) -m benchmarks.speed.kernels
	$(PYTHON) -m benchmarks.speed.throughput

wheels: ## build wheels for all Pythons here into wheels/dist and prove each where there is no compiler (WHEELS="--help")
	build/wheels/bin/python -m wheels $(WHEELS)

wheels wheel-aarch64 slim sdist lowest mujoco: wheel-tools
wheel-tools:
	$(PYTHON) -m venv build/wheels
	build/wheels/bin/python -m pip install --quiet -r wheels/requirements.txt

wheel-aarch64: ## cross-compile the arm64 wheel and prove it in an emulator (Debian: gcc-aarch64-linux-gnu, qemu-user)
	build/wheels/bin/python -m wheels.aarch64

slim: ## use WHEEL, the path of a wheel, in Debian's smallest root (needs root, debootstrap, unshare)
	build/wheels/bin/python -m wheels.slim $(WHEEL)

sdist: ## build the source distribution, and test what is in it and nothing else
	build/wheels/bin/python -m wheels.sdist

lowest: ## the tests with the lowest versions that pyproject.toml allows, on the oldest Python
	build/wheels/bin/python -m wheels.sdist --lowest --python python3.10

# the oldest that pyproject.toml allows, two between, and the newest
MUJOCO ?= 3.1.0 3.3.7 3.17.0 4.0.0

mujoco: ## the tests of environments in C with each of the MUJOCO versions, in fresh environments
	set -e; for version in $(MUJOCO); do \
		build/wheels/bin/python -m wheels.sdist --python python3.11 --also mujoco==$$version -- -rs -m "slow or not slow" tests/envs/native; \
	done

clean: ## remove what builds leave
	rm -rf build dist wheels/dist *.egg-info fastes/_core*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
