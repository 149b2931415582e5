# Everything starts from a fresh machine with Python >= 3.11, pip and make: each target makes .venv and installs what it needs.
PYTHON ?= python3
BIN := .venv/bin
TORCH := .venv/.torch
READY := .venv/.ready
DEMO := .venv/.demo
# Bytecode is written when a module is first imported, not for everything at once; also where the environment says never to write it, for
# then each of the hundreds of processes that the tests start would compile torch again.
export PYTHONDONTWRITEBYTECODE :=
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
BENCH := .venv/.bench
SITE := .venv/.site
# bench.linear wants mnist/ in it: make bench DATA=folder
DATA ?= data
OLDEST := .venv/oldest

.PHONY: demo test lint bench soak peers docs web wheel clean

demo: $(DEMO)
	$(BIN)/nearkin demo
	@echo "nearkin is installed in .venv: run . .venv/bin/activate once, then the commands above."

# One thread a worker; three workers share two cores, for many tests wait for servers, browsers and other processes. Each takes tests that
# follow one another, so that what the tests of a file share is made once.
test: export OMP_NUM_THREADS := 1
test: $(READY)
	$(BIN)/python -m pytest -n 3 --dist worksteal --durations 30 -m "not soak"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_layers.py

bench: $(BENCH)
	$(BIN)/python -m bench.kernels --out docs/bench-cpu.json
	$(BIN)/python -m bench.grid --out docs/bench-grid-cpu.json
	$(BIN)/python -m bench.batches --out docs/bench-batches.json
	$(BIN)/python -m bench.losses --out docs/bench-losses.json
	$(BIN)/python -m bench.peer_losses --out docs/bench-peer-losses.json
	$(BIN)/python -m bench.numerics --out docs/bench-numerics-cpu.json
	$(BIN)/python -m bench.knn --out docs/bench-knn.json
	$(BIN)/python -m bench.metrics
	$(BIN)/python -m bench.precision --out docs/bench-precision.json
	$(BIN)/python -m bench.discovery --device cpu --out docs/bench-discovery.json
	$(BIN)/python -m bench.linear --data $(DATA) --out docs/bench-linear.json
	$(BIN)/python -m bench.service --out docs/bench-service.json
	$(BIN)/python -m bench.attacks --out docs/bench-attacks.json
	$(BIN)/python -m bench.opening --out docs/bench-opening.json
	$(BIN)/python -m bench.shards --out docs/bench-shards.json
	$(BIN)/python -m bench.explorer --out docs/bench-explorer.json
	$(BIN)/python -m bench.scale --out docs/bench-scale.json
	$(BIN)/python -m bench.milvus --out docs/bench-milvus.json
	$(BIN)/python -m bench.tables_large --out docs/bench-tables-large.json
	$(BIN)/python -m bench.label_errors --data $(DATA) --out docs/bench-label-errors.json
	$(BIN)/python -m bench.pick --data $(DATA) --only cifar10 flowers20 --out docs/bench-pick.json

soak: $(READY)
	rm -rf .soak
	NEARKIN_SOAK_RESULTS=$(CURDIR)/.soak $(BIN)/python -m pytest -m soak
	PYTHONPATH=. $(BIN)/python docs/promises.py --collect .soak
	$(BIN)/python -m tests.mutants
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(OLDEST) scikit-learn==1.5.0
	SCIPY_ARRAY_API=1 PYTHONPATH=$(OLDEST):src:. $(BIN)/python tests/estimators/estimator_checks.py

# The tests of scikit-learn, metric-learn and pytorch-metric-learning, with ours in the place of theirs; downloads the last two.
peers: $(READY)
	PYTHONPATH=$(CURDIR)/src:$(CURDIR) $(BIN)/python -m tests.peers.run
	$(BIN)/python -m pytest tests/peers

# Writes the generated pages, then builds the site into docs/_build/html; open index.html in a browser.
docs: export PYTHONPATH := .
docs: $(SITE)
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/performance.py
	$(BIN)/python docs/scale.py
	$(BIN)/python docs/clean_page.py
	$(BIN)/python docs/promises.py
	$(BIN)/python -m sphinx -n -W --keep-going -q -j auto -b html docs docs/_build/html

# The explorer's page is shipped built; this builds it again, byte for byte, and needs Node 18 or newer.
web:
	cd web && npm ci --no-audit --no-fund && npm run --silent check && npm run --silent build

# Wheel and sdist: built, checked, installed into a clean environment and tried there. All of it happens in environments of its own.
wheel: $(TORCH)
	$(BIN)/python .ci/wheel.py

# torch comes first and pinned, so that pip finds the requirement satisfied whatever else it installs.
$(TORCH): constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) torch==2.13.0
	touch $@

$(DEMO): $(TORCH) pyproject.toml
	$(PIP) -e '.[demo]'
	touch $@

# What needs more installs all of it at once: pip looks up every requirement again each time it is called.
$(READY): $(TORCH) pyproject.toml
	$(PIP) -e '.[demo,dev]'
	touch $(DEMO) $@

$(BENCH): $(READY)
	$(PIP) -e '.[bench]'
	touch $@

$(SITE): $(TORCH) pyproject.toml
	$(PIP) -e '.[demo,dev,docs]'
	touch $(DEMO) $(READY) $@

clean:
	rm -rf .venv dist runs docs/_build docs/tutorials docs/reference/generated .soak .pytest_cache .mypy_cache .ruff_cache
