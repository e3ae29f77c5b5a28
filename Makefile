# The two commands: `make demo` and `make test`. Both set up what they need in .venv, from the hash-pinned lock;
# `make install` does that alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LIBTPU := $(VENV)/.libtpu
VM_TENSORFLOW := $(VENV)/vm-tensorflow
BEAM := $(VENV)/beam
PYTORCH := $(CURDIR)/$(VENV)/pytorch
SECURITY := $(VENV)/security
MUTATION := $(VENV)/mutation
DEMO := $(CURDIR)/.demo
WORKERS ?= 3
export PYTHONDONTWRITEBYTECODE :=  # the tests start hundreds of programs: each module is compiled once

.PHONY: install demo quick test test-schedules test-vm test-vm-tensorflow test-vm-jax test-beam test-pytorch test-compiler bench \
	preemptions gpu docs check security audit mutation lock lock-vm sbom leakbench clean

install: $(STAMP)  ## set up only: the command is then .venv/bin/orchestrate
	@echo "installed. Next: . $(BIN)/activate; orchestrate --help"

demo: $(STAMP)  ## rent a TPU VM and a GPU VM on the embedded local cloud, train on both, compare, tear down
	ORCHESTRATE_HOME=$(DEMO) $(BIN)/orchestrate launch --accel v3-8,t4 --workload mnist-cnn --epochs 3 --batch-size 256 --data-size 5120 --max-hours 0.5 --yes
	ORCHESTRATE_HOME=$(DEMO) $(BIN)/orchestrate teardown --all --yes
	ORCHESTRATE_HOME=$(DEMO) $(BIN)/orchestrate budget

PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder
TESTED := not verify and not timing and not network and not compiler
quick: $(STAMP)  ## between two edits: everything on fakes, and the command line
	$(PYTEST) -m "not slow and $(TESTED)"

test: $(LIBTPU)  ## what a contributor and a stranger run: also each kind of whole run once, on the local cloud
	$(PYTEST) -m "$(TESTED)"

SEEDS ?= 300:10000
test-schedules: $(STAMP)  ## 9,700 lives of the simulation on two processes (make test has the first 300); SEEDS=FIRST:END
	$(BIN)/python -m tests.simulation.replay $(SEEDS) --processes 2

leakbench: $(STAMP)  ## interrupted launches through ours and others; needs gcloud; SKYPILOT=PYTHON of skypilot[gcp]
	$(BIN)/python -m tests.verification.leakbench --launches 100 --processes 2 $(if $(SKYPILOT),--skypilot $(SKYPILOT))

COUNT ?= 20
preemptions: $(STAMP)  ## runs preempted at COUNT random steps, by each engine, against undisturbed ones; PREEMPTION_SEED=N for others
	PREEMPTIONS=$(COUNT) $(BIN)/python -m pytest --log-cli-level=INFO tests/e2e/test_preemptions.py

gpu: $(STAMP)  ## the engine jax on this machine's NVIDIA GPU: precision, MFU, and no rate above its products'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "jax[cuda12]==$$($(BIN)/python -c 'import jax; print(jax.__version__)')"
	$(BIN)/python -m benchmarks.jax_on_device

test-vm: $(STAMP)  ## the trainer with the TensorFlow, Keras and NumPy that VMs get, and whether each image's Python can get it; x86_64 Linux
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --require-hashes \
		--target $(VM_TENSORFLOW) -r tests/vm-tensorflow.lock
	PYTHONPATH=$(VM_TENSORFLOW) $(BIN)/python -c \
		'import jax, tensorflow; from infra.vm.environment import JAX, TENSORFLOW; assert (jax.__version__, tensorflow.__version__) == (JAX, TENSORFLOW)'
	$(MAKE) --jobs 2 --output-sync=target test-vm-tensorflow test-vm-jax
	$(BIN)/python -m pytest -n 2 -m network

test-beam: $(STAMP)  ## data sets by Apache Beam, which wants an older protobuf than the other packages: in a folder of its own
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --require-hashes \
		--target $(BEAM) -r tests/beam.lock
	PYTHONPATH=$(BEAM) $(BIN)/python -m pytest -n 2 --dist loadscope tests/trainer/data/test_pipeline.py tests/e2e/test_data.py

test-vm-tensorflow:
	PYTHONPATH=$(VM_TENSORFLOW) $(BIN)/python -m pytest -m "not timing and not slow" \
		tests/trainer/test_training.py tests/trainer/test_resume.py tests/trainer/workloads/test_models.py

test-vm-jax:
	PYTHONPATH=$(VM_TENSORFLOW) $(BIN)/python -m pytest -m "not timing" tests/trainer/engines/test_jax.py

test-compiler: $(LIBTPU)  ## the training step of every workload compiles for every TPU, with both engines; what was said is kept
	$(BIN)/python -m pytest -m compiler tests/infra

bench: $(LIBTPU)  ## every workload at its real size, with both engines, for every TPU, through the TPU compiler: CPU hours
	$(BIN)/python -m benchmarks.tpu_compiles --workloads all --engines tensorflow,jax --batches usual \
		--accel v2-8,v3-8,v4-8,v5litepod-4,v6e-4 --home $(VENV)/bench  # what is done there is not done again

test-pytorch: $(STAMP)  ## the PyTorch example; skipped where the package index lacks that build for this Python
	$(BIN)/python -m venv --without-pip $(PYTORCH)
	@if said=$$($(BIN)/python -m pip --python $(PYTORCH)/bin/python install --quiet --disable-pip-version-check --no-deps \
		--require-hashes -r tests/pytorch.lock 2>&1); then \
		PYTORCH_PYTHON=$(PYTORCH)/bin/python $(BIN)/python -m pytest -k pytorch tests/trainer/script/test_examples.py; \
	else case "$$said" in \
		*"No matching distribution found for torch"*) echo "skipped: the package index has no torch==2.13.0+cpu";; \
		*) echo "$$said"; exit 1;; esac; fi

docs: $(STAMP)  ## the documentation as a site in .site, which loads nothing from elsewhere; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

check: $(STAMP)  ## lint, format, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache  # its cache can miss a file that git has just changed

RULES := tests/semgrep/rules
SEMGREP := PATH=$(CURDIR)/$(SECURITY)/bin:$$PATH SEMGREP_SEND_METRICS=off SEMGREP_ENABLE_VERSION_CHECK=0 $(SECURITY)/bin/semgrep
security: $(SECURITY)/.installed  ## our own rules of Semgrep: their examples, then our code; asks nothing of the network
	@$(SEMGREP) --test --config $(RULES) $(RULES) 2>/dev/null
	@$(SEMGREP) scan --quiet --error --config $(RULES) orchestrator infra trainer

$(SECURITY)/.installed: tests/semgrep/requirements.lock $(STAMP)  # 0.4 GB
	$(BIN)/python -m venv --clear --without-pip $(SECURITY)
	$(BIN)/python -m pip --python $(SECURITY)/bin/python install --quiet --disable-pip-version-check --no-deps \
		--require-hashes -r tests/semgrep/requirements.lock
	@touch $@

SAMPLE ?= 150
mutation: $(STAMP)  ## SAMPLE random changes of guard, ledger, teardown, recovery, kill switches: how many the tests notice; an hour
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --require-hashes \
		--target $(MUTATION) -r tests/verification/mutation/requirements.lock
	PYTHONPATH=$(MUTATION) $(BIN)/python -m tests.verification.mutation --record
	PYTHONPATH=$(MUTATION) $(BIN)/python -m tests.verification.mutation --sample $(SAMPLE)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("orchestrate needs Python 3.11 to 3.13, not " + sys.version.split()[0] + ": make PYTHON=python3.11 ...") if not (3, 11) <= sys.version_info < (3, 14) else None'
	@echo "setting up $(VENV): about 2.7 GB, half of it TensorFlow; silent for several minutes"
	$(PYTHON) -m venv --clear $(VENV)  # an interrupted installation must not spoil the next
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

$(LIBTPU): tests/libtpu.lock $(STAMP)  # the TPU compiler is 0.7 GB, which only tests need
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r tests/libtpu.lock
	@touch $(LIBTPU)

lock:  ## resolve the dependencies anew; needs uv
	uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-emit-index-url --no-header \
		pyproject.toml --extra test -o requirements.lock
	uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-emit-index-url --no-header \
		--constraint requirements.lock pyproject.toml --extra compiler | sed -n '/^libtpu/,/# via/p' > tests/libtpu.lock
	cp requirements.lock $(VENV)/beam.lock  # what is pinned there already is kept where Beam allows it, and left out below
	uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-emit-index-url --no-header --no-annotate \
		pyproject.toml --extra test --extra beam -o $(VENV)/beam.lock
	$(PYTHON) -c 'import re, sys; there, new = (re.split(r"\n(?=\S)", open(p).read()) for p in sys.argv[1:]); \
		known = {b.split(" ")[0] for b in there}; print("\n".join(b for b in new if b.split(" ")[0] not in known))' \
		requirements.lock $(VENV)/beam.lock > tests/beam.lock

VM_LOCK := uv pip compile --quiet --no-emit-index-url --no-header --no-annotate --only-binary :all: --python-version
VM_NEEDS = $(PYTHON) -c 'from infra.vm.environment import ENGINES; r = ENGINES["$(1)"].requirements; print(*{*r["tpu"], *r["gpu"]}, sep="\n")'
lock-vm:  ## pin anew what VMs install, this uv too; CUDA as this TensorFlow was built with, the lowest it accepts; needs uv
	$(call VM_NEEDS,tensorflow) > $(VENV)/vm.in
	$(VM_LOCK) 3.10 --resolution lowest $(VENV)/vm.in | grep ^nvidia > $(VENV)/cuda.in
	$(VM_LOCK) 3.10 --universal --fork-strategy fewest --constraint $(VENV)/cuda.in $(VENV)/vm.in -o infra/vm/constraints.txt
	$(call VM_NEEDS,jax) > $(VENV)/vm-jax.in
	grep -v '^nvidia\|^libtpu' infra/vm/constraints.txt > $(VENV)/shared.in  # both engines: the same Keras, NumPy ..
	$(VM_LOCK) 3.11 --universal --fork-strategy fewest --constraint $(VENV)/shared.in $(VENV)/vm-jax.in -o infra/vm/constraints-jax.txt
	uv self version --short | sed 's/^\([^ ]*\).*/uv==\1/' | $(VM_LOCK) 3.10 --generate-hashes - -o infra/vm/uv.txt

audit:  ## known vulnerabilities of the locked packages, by PyPI's advisories: needs the internet, and fails without; needs uv
	uv tool run pip-audit==2.10.1 --strict --require-hashes --disable-pip --requirement requirements.lock

sbom:  ## sbom.json: every package of the lock with its hashes (CycloneDX); needs uv
	uv tool run --from cyclonedx-bom==7.5.0 cyclonedx-py requirements requirements.lock --of JSON -o sbom.json

clean:  ## remove what the other targets made
	rm -rf $(VENV) $(DEMO) .site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
