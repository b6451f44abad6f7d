# Every target works on a bare machine with Python 3.10 or newer and a C++ compiler: it makes its own environment first.
#   make demo           train the nested RNN on real data
#   make test           the test suite: laws, rules, operators, recorded cases, drop-in, data
#   make test-programs  examples, pages, recipes, packages, process groups
#   make test-all       the whole grid of every law, with compiled operators and without, and the sanitizers: hours
#   make quick          after every edit, in under a minute: the rules about sources and every law on a few samples
#   make fuzz           the laws over random examples, 100,000 of them (EXAMPLES=1000000: more)
#   make programs       random programs on batches, and on every sequence alone, 100,000 of them
#   make bench          the benchmark table
#   make wheel          one wheel for every torch from 2.11 on, in dist (docs/releasing.md)
#   make site           the pages as a site with a search, in build/site
PYTHON ?= python3
# Any newer torch works as well: TORCH=torch takes the newest of the package index.
TORCH ?= torch==2.13.*
VENV ?= .venv
# The environment of other people's models.
MODELS ?= .venv-models
# That of the libraries whose formats tl.data reads.
FORMATS ?= .venv-formats
# That of the generator of the site.
SITE ?= .venv-site
BIN := $(VENV)/bin
# A pipe fails where one of its commands does.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
ARGS ?=
EXAMPLES ?= 100000
# Processes that share the tests.
JOBS ?= 2
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist worksteal
SOURCES := $(shell find csrc torch_lod -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.py') setup.py pyproject.toml

.PHONY: demo test test-programs quick test-all test-fallback test-emulated sanitize-gpu fuzz programs catalogue files mutate sanitize models formats bench lint recipe docs site wheel size cuda clean

$(VENV)/torch: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check "$(TORCH)" numpy ninja wheel "setuptools>=77,<82"
	@touch $@

$(VENV)/installed: $(VENV)/torch $(SOURCES)
	@mkdir -p build; echo "building the operators: some minutes (build/install.log)"
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pip install -v --disable-pip-version-check --no-build-isolation --no-deps -e . 2>&1 \
	  | tee build/install.log | sed -un 's/^ *\(\[[0-9]*\/[0-9]*\]\) .*csrc\/\([a-z_\/]*\).cpp.*/\1 \2/p; /^ *torch_lod: /p' \
	  || { tail -n 60 build/install.log; exit 1; }
	@touch $@

$(VENV)/examples: $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check matplotlib
	@touch $@

$(VENV)/dev: $(VENV)/examples
	$(BIN)/pip install --quiet --disable-pip-version-check pytest pytest-xdist hypothesis ruff mypy basedpyright
	@touch $@

demo: $(VENV)/examples
	$(BIN)/python examples/train_nested_rnn.py $(ARGS)

# Laws, rules, operators, recorded cases, drop-in, data: what tests/README.md lists. No test of it starts a training or a build.
test: $(VENV)/dev
	$(PYTEST) -m "not program" $(ARGS)

# Examples, pages, recipes, packages, process groups, limits of memory and time.
test-programs: $(VENV)/dev
	$(PYTEST) -m program $(ARGS)

quick: $(VENV)/dev
	$(PYTEST) -m quick $(ARGS)

# Laws and recorded cases on the compositions that replace the compiled operators: tests/conftest.py says which.
test-fallback: $(VENV)/dev
	TORCH_LOD_COMPOSED=1 $(PYTEST) $(ARGS)

# The whole grid of every law, with compiled operators and without, and everything under sanitizers: some hours.
test-all: $(VENV)/dev
	TORCH_LOD_FULL=1 $(PYTEST) $(ARGS)
	TORCH_LOD_FULL=1 TORCH_LOD_COMPOSED=1 $(PYTEST) $(ARGS)
	$(MAKE) sanitize test-emulated sanitize-gpu

# The kernels for GPUs on a device whose memory is the host's (tests/emulated_gpu), in every order of their threads;
# ARGS=short: the first dtype of every operator, in one order.
test-emulated: $(VENV)/dev
	JOBS=$(JOBS) $(BIN)/python -W ignore tests/emulated_gpu $(ARGS)

# The same, and malformed calls, under AddressSanitizer and UndefinedBehaviorSanitizer.
sanitize-gpu: $(VENV)/dev
	JOBS=$(JOBS) $(BIN)/python -W ignore tests/emulated_gpu sanitize $(ARGS)

# Ends with the counts; what fails is printed shrunk. The law of leaks may be run alone: ARGS="-k leak".
fuzz: $(VENV)/dev
	TORCH_LOD_FUZZ=$(EXAMPLES) $(PYTEST) tests/laws/test_fuzz.py $(ARGS)

# The law of compositions over random programs, 100,000 of them: tests/lib/composition_law.py.
programs: $(VENV)/dev
	TORCH_LOD_PROGRAMS=$(EXAMPLES) $(PYTEST) -s tests/rules/test_composition_law.py $(ARGS)

# Every entry point with every malformed argument (tests/lib/malformed_classes.py), not the sample that make test takes.
catalogue: $(VENV)/dev
	$(BIN)/python -W ignore tests/lib/malformed_pool.py $(ARGS)

# Every byte of a saved LoDTensor changed in every bit, and every length.
files: $(VENV)/dev
	$(BIN)/python -W ignore tests/lib/malformed_files.py all

# Takes out the rules of the validators one at a time; ARGS=compiled those of the compiled operators, in a build of its own.
mutate: $(VENV)/dev
	$(BIN)/python -W ignore tests/lib/mutate.py $(ARGS)

# The operators under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer; ARGS=short takes a few minutes.
sanitize: $(VENV)/dev
	JOBS=$(JOBS) $(BIN)/python -W ignore tests/sanitize $(ARGS)

# Public models on a LoDTensor, unedited and changed as the errors say: benchmarks/results/public-models.md. Needs the
# package index. torchaudio's compiled part belongs to another torch, and its models do not use it.
models: $(VENV)/installed $(MODELS)/done
	PYTHONPATH="$(CURDIR)" $(MODELS)/bin/python -W ignore tests/lib/public_models.py $(ARGS)

$(MODELS)/done: tests/lib/public_models.txt
	$(PYTHON) -m venv $(MODELS)
	$(MODELS)/bin/pip install --quiet --disable-pip-version-check "$(TORCH)" numpy
	$(MODELS)/bin/pip install --quiet --disable-pip-version-check --no-deps -r $<
	rm -rf $(MODELS)/lib/python*/site-packages/torchaudio/lib
	@touch $@

# What tl.data and tl.integrations make of other libraries, with those libraries. Needs the package index.
formats: $(VENV)/installed $(FORMATS)/done
	PYTHONPATH="$(CURDIR)" $(FORMATS)/bin/python -m pytest $(addprefix tests/data/check_,formats.py frames.py transformers.py methods.py generation.py architectures.py trainer.py tokens.py torchao.py onnx.py) $(ARGS)

$(FORMATS)/done: Makefile
	$(PYTHON) -m venv $(FORMATS)
	$(FORMATS)/bin/pip install --quiet --disable-pip-version-check "$(TORCH)" pytest pyarrow awkward safetensors torchdata \
	  pandas polars duckdb tensordict torch_geometric transformers tokenizers datasets accelerate torchao \
	  onnx onnxscript onnxruntime
	@touch $@

bench: $(VENV)/dev
	$(BIN)/python -m benchmarks $(ARGS)

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/programs/check_types.py

# CONTRIBUTING's recipe for an operator with a kernel, held to the laws in a copy of the tree; objects that are there are reused.
recipe: $(VENV)/dev
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tests/lib/recipe.py "An operator with a kernel"

docs: $(VENV)/dev
	$(BIN)/python docs/build.py
	$(BIN)/python docs/notebook.py

# The pages as a site in build/site; a dead link is an error. Needs the package index the first time only, and no torch.
site: $(SITE)/done
	$(SITE)/bin/python docs/site/build.py

$(SITE)/done: docs/site/requirements.txt
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# Fetches the wheel of every release of torch that it has bindings for, one at a time, unless ARGS="--headers FOLDER".
wheel: $(VENV)/torch
	JOBS=$(JOBS) $(BIN)/python packaging/wheel.py $(ARGS)

size:
	@$(PYTHON) tests/lib/size.py

# Compiles the GPU kernels, and checks the bindings in their GPU form, where there is a CUDA compiler; no GPU is needed.
# ARGS=short: the bindings in their GPU form are those of the emulated device (make test-emulated), and one here.
cuda: $(VENV)/torch
	@JOBS=$(JOBS) $(BIN)/python tests/lib/compile_cuda.py $(ARGS)

clean:
	rm -rf build dist *.egg-info torch_lod/*.so $(VENV) $(MODELS) $(FORMATS) $(SITE) runs .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
