# One entry point for everything; each target sets up .venv first, which costs nothing when it is there already.
# Extra arguments go in ARGS: make test ARGS="tests/unit -x", make run ARGS="--help".

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
# Without a cache each process would compile every test file.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n logical --maxprocesses 8
FAST := tests/unit tests/ui -m "not process and not slow" --hypothesis-profile=fast

.DEFAULT_GOAL := help
.PHONY: help setup run test test-fast slow-tests test-pinned test-textual test-vllm coverage check lint format types contracts eval occlusion fuzz torture zoo ray parity families keys settings fresh-check release-check bench screenshots casts train clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-12s %s\n", $$1, $$2}'

setup: ## make .venv with everything in it
	@$(PYTHON) tools/setup_env.py

run: setup ## open vlmtui; without a terminal, ask the bundled model about a bundled picture
	@if $(if $(strip $(ARGS)),true,[ -t 0 ] && [ -t 1 ]); then \
		exec $(BIN)/vlmtui $(ARGS); \
	else \
		image=$$($(BIN)/python -c "from vlmtui.paths import sample_image; print(sample_image())") && \
		exec $(BIN)/vlmtui ask --keep-alive 0 --image "$$image" "What is in this image?"; \
	fi

test: setup ## run every test, a process a core, engines one after another; a few failures once more, alone (ARGS="tests/unit -n 0": in one process)
	@$(BIN)/python tools/run_tests.py -n logical --maxprocesses 8 --dist loadgroup $(ARGS)

test-fast: setup ## run the unit and screen tests but for the slow ones and those that start processes (about two minutes)
	@# Screen tests wait about as long as they compute: two of them share a core.
	@PYTEST_XDIST_AUTO_NUM_WORKERS=$$((2 * $$(getconf _NPROCESSORS_ONLN))) $(PYTEST) --dist worksteal -q --cost-limit 3 $(FAST) $(ARGS)

slow-tests: setup ## measure the unit and screen tests, and list those that are too slow for test-fast (ten minutes)
	@$(BIN)/python tools/slow_tests.py -n logical --maxprocesses 8 --dist worksteal $(ARGS)

test-pinned: setup ## install vLLM 0.23.0 and try its families (6 GB in the temporary folder, about ten minutes)
	@VLMTUI_TEST_PINNED=$${VLMTUI_TEST_PINNED:-1} $(BIN)/python -m pytest -n 0 tests/pinned $(ARGS)

test-textual: setup ## run the screen tests on another Textual, for instance VERSION=8.2.7 (ten minutes)
	@folder=$$(mktemp -d) && $(BIN)/python -m pip -q install --no-deps --target $$folder textual==$(VERSION) && \
		PYTHONPATH=$$folder $(PYTEST) -q tests/ui $(ARGS); status=$$?; rm -r $$folder; exit $$status

test-vllm: setup ## run the zoo with another vLLM's Python code, for instance VERSION=0.33.0 (20 minutes; ARGS="-m pytest -n 0 tests/engine": other tests; WITH=PACKAGE: what it needs besides)
	@$(BIN)/python tools/other_vllm.py $(VERSION) $(addprefix --with=,$(WITH)) $(or $(ARGS),-m tests.zoo)

coverage: setup ## measure what `test-fast` reaches: a table, and what is below 85 %
	@status=0; $(PYTEST) --dist worksteal -q --cov --cov-report= $(FAST) $(ARGS) || status=$$?; \
		$(BIN)/coverage report && echo "below 85 %:" && \
		{ $(BIN)/coverage report --sort=cover | awk '/\.py/ && $$NF + 0 < 85 { print "  " $$NF, $$1 }'; } && exit $$status

check: lint format types contracts ## lint, formatting, types, import contracts (-k: all of them, even when one fails)

lint: setup
	$(BIN)/ruff check .

format: setup
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

contracts: setup
	$(BIN)/lint-imports

eval: setup ## measure the bundled model's answers
	@$(BIN)/python tools/eval_shapes.py $(ARGS)

occlusion: setup ## measure whether the heat map points at the named shape, on 100 drawings (5 to 40 minutes)
	@$(BIN)/python tools/eval_occlusion.py $(ARGS)

fuzz: setup ## feed every reader of outside data with mutated files, 15,900 in all (about ten minutes)
	@$(BIN)/python -m tests.fuzz $(ARGS)

torture: setup ## kill and break everything in 200 rounds; nothing may be lost or left (half an hour on two busy cores)
	@$(BIN)/python -m tests.torture $(ARGS)

zoo: setup ## try a tiny model of every family in the real engine (about 20 minutes)
	@PYTHONPATH=$(CURDIR)/src/vlmtui/worker/site $(BIN)/python -m tests.zoo $(ARGS)

ray: setup ## install Ray, and answer a batch on two actors of it, one of which is killed (about a minute)
	@$(BIN)/python -m pip install -q --no-deps --require-hashes -r requirements/ray.txt
	@$(BIN)/python -m pytest -q -n 0 tests/batches/test_batch_ray.py $(ARGS)

parity: setup ## compare tiny models in vLLM and in Transformers, and find planted faults (about 15 minutes)
	@PYTHONPATH=$(CURDIR)/src/vlmtui/worker/site $(BIN)/python -m tests.zoo.parity $(ARGS) && \
		PYTHONPATH=$(CURDIR)/src/vlmtui/worker/site $(BIN)/python -m tests.zoo.faults

families: setup ## write the table of families into docs/families.md
	@$(BIN)/python tools/family_table.py

fresh-check: ## try the set-up from nothing, with every Python that is found here, and the wheel (half an hour)
	@$(PYTHON) tools/fresh_check.py $(ARGS)

release-check: ## install the wheel in empty environments with Python 3.11 to 3.13, and try what a user does first (five minutes)
	@$(PYTHON) tools/release_check.py $(ARGS)

keys: setup ## write the tables of keys into docs/keys.md
	@$(BIN)/python tools/key_table.py

settings: setup ## write docs/settings.md
	@$(BIN)/python tools/settings_table.py

bench: setup ## measure speed, against the budgets
	@$(BIN)/python -m benchmarks $(ARGS)

screenshots: setup ## draw screenshots/
	@$(BIN)/python tools/screenshots.py $(ARGS)

casts: setup ## record the demos in screenshots/ (asciinema play screenshots/chat.cast)
	@PYTHONPATH=. $(BIN)/python -m tools.casts $(ARGS)

train: setup ## train the bundled model from scratch (about two hours on two cores), or go on where it stopped
	@mkdir -p .train
	@$(BIN)/python tools/train_shapes.py --checkpoint .train/state.pt --export src/vlmtui/bundled/shapes \
		$$([ -e .train/state.pt ] && echo --resume) $(ARGS)

clean: ## remove .venv, caches and build outputs
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.*
	find src tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
