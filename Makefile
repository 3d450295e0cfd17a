# Every command a person needs. `make` alone lists them.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
PIP     = $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
WORKERS ?= 2
COVERAGE ?= 70

.DEFAULT_GOAL := help
.PHONY: help setup demo test coverage test-integrations test-ray test-robust test-newest test-oldest test-oldest-torch test-oldest-extras check bench docs site bench-gpu test-gpu sanitize-gpu clean

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':[^#]*## *' '{printf "  make %-18s %s\n", $$1, $$2}'

setup: $(VENV)/.ready  ## create the virtual environment (.venv) with everything below

$(VENV)/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch numpy
	$(PIP) -e '.[torch,lab,dev,docs]'
	touch $@

demo: setup  ## compare optimizers on embedded data: about a minute, ends with an answer, tables and report.html
	$(BIN)/adax demo

test: setup  ## the test suite: core and lab, no GPU needed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal tests --ignore=tests/integrations

coverage: setup  ## the same suite, with the share of lines and branches that it runs (a table, and build/coverage/index.html)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --cov --cov-report=term:skip-covered \
	    --cov-report=html:build/coverage --cov-fail-under=$(COVERAGE) tests --ignore=tests/integrations

# Each line: instruction set of torch, of oneDNN, threads, seed of the order, other options. All are run; one failure fails.
ROBUST = "default SSE41 1 11" "avx2 AVX2 2 22" "- - 2 33 --nudge=same"

test-robust: setup  ## the suite on other instruction sets, with 1 and 2 threads, shuffled, weights moved by half an ulp (not in CI)
	failed=0; for given in $(ROBUST); do set -- $$given; echo "== ATEN $$1, oneDNN $$2, threads $$3, order $$4 $$5"; \
	    ( test $$1 = - || export ATEN_CPU_CAPABILITY=$$1 ONEDNN_MAX_CPU_ISA=$$2; \
	    PYTHONPATH=src:tests OMP_NUM_THREADS=$$3 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -p robust \
	        --random-order --random-order-seed=$$4 $$5 tests --ignore=tests/integrations ) || failed=1; \
	done; exit $$failed

check: setup  ## ruff, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=src $(BIN)/lint-imports

# The tables are written after failures too (they name them): records and page never part.
INTEGRATIONS = .venv-integrations
FRAMEWORKS = torch numpy jax optax keras tensorflow-cpu transformers accelerate lightning peft ray pytorch_optimizer schedulefree heavyball optuna tensorboard scikit-learn triton tyro rich pillow pytest pytest-xdist build

$(INTEGRATIONS)/.ready: constraints-integrations.txt
	test -x $(INTEGRATIONS)/bin/python || $(PYTHON) -m venv $(INTEGRATIONS)
	$(INTEGRATIONS)/bin/pip install --quiet --disable-pip-version-check -c constraints-integrations.txt $(FRAMEWORKS)
	$(INTEGRATIONS)/bin/pip install --quiet --disable-pip-version-check --no-deps -c constraints-integrations.txt timm
	$(INTEGRATIONS)/bin/pip install --quiet --disable-pip-version-check --no-deps --upgrade \
	    --target $(INTEGRATIONS)/torchvision-for-timm torchvision==0.28.0
	touch $@

test-integrations: $(INTEGRATIONS)/.ready  ## JAX, Keras, trainers, many processes, packaging; writes the table of docs/integrations.md
	PYTHONPATH=src OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES= ADAXOPT_REQUIRE_INTEGRATIONS=1 \
	    ADAXOPT_INTEGRATIONS_RECORD=records/integrations.json \
	    $(INTEGRATIONS)/bin/python -m pytest -q -n $(WORKERS) --dist loadfile -m "not gpu" tests/integrations \
	    --ignore=tests/integrations/test_ray.py; \
	    code=$$?; $(INTEGRATIONS)/bin/python tests/integrations/render.py && exit $$code

test-ray: $(INTEGRATIONS)/.ready  ## runs of a study on a local Ray cluster of two nodes (needs free ports)
	PYTHONPATH=src OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES= ADAXOPT_REQUIRE_INTEGRATIONS=1 \
	    ADAXOPT_INTEGRATIONS_RECORD=records/integrations.json \
	    $(INTEGRATIONS)/bin/python -m pytest -q tests/integrations/test_ray.py; \
	    code=$$?; $(INTEGRATIONS)/bin/python tests/integrations/render.py && exit $$code

OLDEST = .venv-oldest

$(OLDEST)/.ready: constraints-oldest.txt
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/pip install --quiet --disable-pip-version-check -c constraints-oldest.txt \
	    torch numpy jax optax keras ray tyro rich pillow mpmath huggingface_hub safetensors pytest
	$(OLDEST)/bin/pip install --quiet --disable-pip-version-check --no-deps -c constraints-oldest.txt timm
	$(OLDEST)/bin/pip install --quiet --disable-pip-version-check --no-deps --upgrade \
	    --target $(OLDEST)/torchvision-for-timm torchvision==0.28.0
	touch $@

# The whole suite on other releases of torch: separate environments, because each brings its own CUDA libraries.
RELEASE = torch numpy pytest pytest-xdist hypothesis expecttest tyro rich altair vl-convert-python pillow playwright mpmath

.venv-torch-%/.ready: constraints-torch-%.txt
	test -x .venv-torch-$*/bin/python || $(PYTHON) -m venv .venv-torch-$*
	.venv-torch-$*/bin/pip install --quiet --disable-pip-version-check -c $< $(RELEASE)
	touch $@

ON_RELEASE = PYTHONPATH=src:tests OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES= \
	    .venv-torch-$(1)/bin/python -m pytest -q -n $(WORKERS) --dist worksteal -p release \
	    --release-record records/torch_releases.json tests --ignore=tests/integrations; \
	    code=$$?; .venv-torch-$(1)/bin/python tests/integrations/render.py && exit $$code

test-newest: .venv-torch-newest/.ready  ## the suite on the newest torch (not in CI); writes its line of docs/integrations.md
	$(call ON_RELEASE,newest)

test-oldest: test-oldest-torch test-oldest-extras  ## the oldest torch and the oldest releases of the extras (not in CI); writes their tables

test-oldest-torch: .venv-torch-oldest/.ready
	$(call ON_RELEASE,oldest)

test-oldest-extras: $(OLDEST)/.ready
	PYTHONPATH=src OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES= ADAXOPT_REQUIRE_INTEGRATIONS=1 \
	    ADAXOPT_INTEGRATIONS_RECORD=records/integrations_oldest.json \
	    $(OLDEST)/bin/python -m pytest -q -m "not gpu" -k "(jax or keras or timm or ray) and not tensorflow" \
	    tests/integrations/test_jax.py tests/integrations/test_jax_options.py tests/integrations/test_jax_parity.py \
	    tests/integrations/test_keras.py \
	    tests/integrations/test_trainers.py tests/integrations/test_ray.py; \
	    code=$$?; $(OLDEST)/bin/python tests/integrations/render.py && exit $$code

bench: setup  ## CPU step time and memory beside torch's AdamW
	$(BIN)/python benchmarks/cpu.py
	$(BIN)/python benchmarks/lab.py

docs: setup  ## write the tables of README.md and docs/ anew from records/
	$(BIN)/python -m adaxlab.paper.figures
	$(BIN)/adax claims > /dev/null
	$(BIN)/python -m adaxlab.paper.pages

site: setup  ## build the documentation site in build/html; a warning or a broken link is an error
	PYTHONPATH=src $(BIN)/python tools/site_source.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python tools/site_links.py build/html

# Only the files that have such tests: a GPU machine may have less installed than the others ask for.
test-gpu:  ## the GPU part of the test suite (uses the python on the PATH when there is no .venv)
	PYTHONPATH=src ADAXOPT_INTEGRATIONS_RECORD=records/integrations_gpu.json \
	    $$(test -x $(BIN)/python && echo $(BIN)/python || echo $(PYTHON)) -m pytest -m gpu \
	    $$(grep -rl --include='*.py' 'mark\.gpu' tests)

bench-gpu:  ## GPU step time and memory beside torch's fused AdamW; writes records/
	python=$$(test -x $(BIN)/python && echo $(BIN)/python || echo $(PYTHON)); export PYTHONPATH=src; \
	    $$python benchmarks/gpu.py --rounds 21 --compiled 256M ResNet-50 ResNet-20 && \
	    $$python benchmarks/adamw.py && $$python benchmarks/eightbit.py

sanitize-gpu:  ## the GPU kernel under NVIDIA's compute-sanitizer: memory and races
	python=$$(test -x $(BIN)/python && echo $(BIN)/python || echo $(PYTHON)); export PYTHONPATH=src; \
	    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck --error-exitcode 1 \
	        $$python benchmarks/sanitize.py && \
	    compute-sanitizer --tool racecheck --error-exitcode 1 $$python benchmarks/sanitize.py --steps 4

clean:  ## remove the environment and caches
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
