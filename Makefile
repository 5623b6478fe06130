# Every target sets up what it needs in .venv; `make demo` and `make test` work on a fresh clone.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
OUT ?= runs

.PHONY: install demo test check audit torture smoke docs site clean
.DELETE_ON_ERROR:

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[dev]'
	touch $@

demo: install  ## the standard library's documentation becomes a search engine, judged
	$(BIN)/liebig demo --out $(OUT)/demo

test: install  ## three workers for two cores, because servers and browsers are waited for
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist worksteal

check: install
	$(BIN)/ruff format --no-cache --check src tests bench docs experiments
	$(BIN)/ruff check --no-cache src tests bench docs experiments
	$(BIN)/mypy
	$(BIN)/bandit -q -ll -c pyproject.toml -r src/liebig

audit: install  ## known holes in the versions of constraints.txt; asks the Python package index
	$(BIN)/python -m tests.faults.audit

torture: install  ## the long form of tests/faults; PARTS="kills fuzz" for some, ARGS="--seed 1" for other sizes and seeds
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults.torture $(PARTS) --out $(OUT)/torture $(ARGS)

smoke: install  ## every smoke recipe and every row of the papers' tables, end to end
	set -e; for recipe in recipes/smoke/*.toml; do $(BIN)/liebig run $$recipe --out $(OUT)/smoke/$$(basename $$recipe .toml); done
	$(BIN)/python -m tests.worlds.papers $(OUT)/smoke/data
	$(BIN)/liebig reproduce all --smoke --data $(OUT)/smoke/data --out $(OUT)/smoke/papers

docs: install  ## the pages that are made from the code
	$(BIN)/python docs/generate.py

site: install  ## the documentation as pages, in site/
	$(BIN)/python docs/build_site.py

clean:
	rm -rf .venv $(OUT) artefacts .mypy_cache .ruff_cache
