# Two commands do everything: `make demo` and `make test`. Both set themselves up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.synced
BENCH := .venv-bench

# Tests start hundreds of processes: they read the bytecode that the first one wrote, as a user's do.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup test test-all test-campaign lint demo eval-retrieval eval-faithfulness eval-fixes proofs eval-own eval-capability eval-repos no-false-fixed tests-judged bench bench-setup bench-smoke bench-audit-memory bench-fleet fleet-simulation hostile hostile-audit hostile-portal hostile-http hostile-fleet load-http record record-registry lock clean

help:
	@echo "make demo   fix real vulnerabilities, proved in a sandbox (no account, no key, no server)"
	@echo "make test   run the test suite (sockets blocked except loopback)"
	@echo "make test-campaign   what make test leaves out: small campaigns, and the rest of many alike"
	@echo "make test-all   both"
	@echo "make lint   format, lint, types, layers"
	@echo "make bench  measure against peers in the same run"
	@echo "make bench-fleet   what engines add to a fix, memory over a thousand, where one chain saturates"
	@echo "make fleet-simulation   small fixes, what a simulation makes of them, and the run that it predicts"
	@echo "make hostile   the slow campaigns: hostile answers, patches, texts, code (an hour)"
	@echo "make hostile-http   requests of every kind, made from the OpenAPI document (half an hour)"
	@echo "make load-http   rates, latencies, memory and followers of the service under load (half an hour)"
	@echo "make hostile-audit   kill -9, failing disks, lost power, tampering against the audit trail (an hour)"
	@echo "make hostile-fleet   kill -9 of workers, fixes, Temporal and PostgreSQL, cut networks, slow disks under a fleet (ARGS='--minutes N')"
	@echo "make hostile-portal   others' lists of XSS lines through every page of the portal, in a real browser"
	@echo "make bench-recipes DATA=../shared/data   run the recipe cases with the real clients"
	@echo "make eval-retrieval DATA=../shared/data  measure the solved-example memory"
	@echo "make eval-faithfulness DATA=../shared/data   a judge of plans against labelled claims"
	@echo "make eval-fixes ARGS='--model M --base-url U'   a model over vulnerable mini-projects"
	@echo "make proofs      fix real packages at vulnerable versions, each with a proof of its flaw"
	@echo "make eval-own DATA=../shared/data   real packages in their own repositories, answers known beforehand"
	@echo "make eval-capability DATA=../shared/data   what the capability gate asks of real fixes, and misses"
	@echo "make eval-repos DATA=../shared/data   whole runs of fix over repositories of every kind, beside peers"
	@echo "make no-false-fixed   small cases made after other tools' bug reports, judged by the real clients, next to peers"
	@echo "make tests-judged DATA=../shared/data   are tests of public repositories compared, and does a broken function fail them?"
	@echo "make lock   renew requirements.lock from pyproject.toml"

setup: $(STAMP)

# pip brings uv (the lock's own entry, hash-checked); uv brings everything else.
$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "fallback-tier needs Python >= 3.11; set PYTHON=/path/to/one"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	awk '/^uv==/{p=1} p{print} p&&!/\\$$/{exit}' requirements.lock > $(VENV)/uv.txt
	test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --no-deps --require-hashes -r $(VENV)/uv.txt
	$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes --compile-bytecode requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --offline -e .
	touch $@

# What registries answer the tests, recorded once (only this asks them); without, those are skipped.
.registry/.stamp: tests/registry/recorded.txt | setup
	$(BIN)/python -m tests.registry.fetch

# Twice the cores: a third of a test's time is waiting, for registries, sandboxes and time-outs.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 1))')

# env -u: no test may depend on a key that happens to be set.
test: setup .registry/.stamp
	env -u ANTHROPIC_API_KEY -u ANTHROPIC_AUTH_TOKEN -u ANTHROPIC_BASE_URL $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --ignore=tests/campaigns $(ARGS)

# The same, with campaigns and all of many alike.
test-all: setup .registry/.stamp
	env -u ANTHROPIC_API_KEY -u ANTHROPIC_AUTH_TOKEN -u ANTHROPIC_BASE_URL $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "campaign or not campaign" $(ARGS)

# What `make test` leaves out, and CI runs after it: the small versions of campaigns (tests/campaigns), and the rest of many alike.
test-campaign: setup .registry/.stamp
	env -u ANTHROPIC_API_KEY -u ANTHROPIC_AUTH_TOKEN -u ANTHROPIC_BASE_URL $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m campaign $(ARGS)

# The demo runs from the wheel, as a user's would: nothing of this checkout is on its path. Of what it depends
# on it imports a tenth, once: compiling all took longer than the demo.
demo: setup
	rm -rf dist && $(BIN)/python -m hatchling build -t wheel > /dev/null
	test -x .venv-demo/bin/python || $(BIN)/uv venv --quiet --python $(PYTHON) .venv-demo
	$(BIN)/uv pip sync --quiet --python .venv-demo/bin/python --require-hashes requirements.lock
	$(BIN)/uv pip install --quiet --python .venv-demo/bin/python --no-deps --offline --compile-bytecode dist/*.whl
	.venv-demo/bin/fallback-tier demo

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# What the tests do by the dozen, by the thousand: STARTS=1000 for fewer sandboxes.
hostile: setup
	$(BIN)/python -m tests.campaigns.hostile.test_answers
	$(BIN)/python -m tests.campaigns.hostile.test_patches
	$(BIN)/python -m tests.campaigns.hostile.test_fence_inputs
	$(BIN)/python -m tests.campaigns.hostile.test_logs
	$(BIN)/python -m tests.campaigns.hostile.resume
	$(BIN)/python -m tests.campaigns.hostile.test_sandbox_starts $(STARTS)
	$(BIN)/python -m tests.campaigns.hostile.payloads

# Requests of every kind against the service: REQUESTS=1000 for fewer, MINUTES=30 to end it then, ARGS=--report.
hostile-http: setup
	$(BIN)/python -m tests.campaigns.hostile.test_http $(or $(REQUESTS),100000) $(MINUTES) $(ARGS)

# Load on the service from a second process: ARGS="--minutes 10", ARGS=--report to keep the figures.
load-http: setup
	$(BIN)/python -m tests.campaigns.load $(ARGS)

# The audit trail: ARGS="--only NAME", ARGS="--minutes 5", ARGS=--report to keep the figures.
hostile-audit: setup
	$(BIN)/python -m tests.campaigns.hostile.audit $(ARGS)

hostile-fleet: setup
	$(BIN)/python -m tests.campaigns.hostile.fleet --report $(ARGS)

# The portal in a real Chromium: LINES=200 for fewer.
hostile-portal: setup
	$(BIN)/python -m tests.campaigns.hostile.portal $(LINES)

# Measured as installed: our wheel with its dependencies and the embedding model, peers apart.
bench: bench-setup
	$(BIN)/python -m tests.campaigns.bench $(ARGS)

# Does every row still work? Two rounds each: no figures to believe.
bench-smoke: bench-setup
	$(BIN)/python -m tests.campaigns.bench --smoke --json bench-results/smoke.json $(ARGS)

# Every recipe case with the real clients, judged: ONLY=text for some, ARGS=--resume to go on.
bench-recipes: setup
	$(BIN)/python -m tests.campaigns.recipes_bench $(or $(DATA),../shared/data) --report docs/recipe-coverage.md $(if $(ONLY),--only $(ONLY)) $(ARGS)

# Every variant of the retrieval over the golden set: ARGS=--reserved for the final table.
eval-retrieval: setup
	$(BIN)/fallback-tier eval retrieval --data $(or $(DATA),../shared/data) $(ARGS)

# A judge over the labelled claims; it goes on where it stopped: ARGS="--judge-model M --judge-base-url U".
eval-faithfulness: setup
	$(BIN)/fallback-tier eval faithfulness --data $(or $(DATA),../shared/data) $(ARGS)

# A model over the vulnerable mini-projects; it goes on where it stopped: ARGS="--model M --base-url U".
eval-fixes: setup
	$(BIN)/fallback-tier eval fixes $(ARGS)

# Real packages with real flaws, fetched now; it goes on where it stopped: ARGS="--only NAME", ARGS=--again.
proofs: setup
	$(BIN)/python -m tests.campaigns.proofs $(ARGS)

# Real packages in their own repositories, no model; goes on where it stopped: ARGS="--clones DIR --label baseline".
eval-own: setup
	$(BIN)/python -m tests.campaigns.own_code --data $(or $(DATA),../shared/data) $(ARGS)

# Real fixes and evasions before the capability gate: ARGS="--clones DIR --projects".
eval-capability: setup
	$(BIN)/python -m tests.campaigns.capability --data $(or $(DATA),../shared/data) $(ARGS)

# Whole runs of fix with gates, judged, beside peers; goes on where it stopped: ARGS="--only NAME --clones DIR".
eval-repos: setup
	$(BIN)/python -m tests.campaigns.eval_repos --data $(or $(DATA),../shared/data) $(ARGS)

# Small repositories, their ends expected beforehand; resumes where it stopped: ARGS="--only ID --half seen --no-peers".
no-false-fixed: setup
	$(BIN)/python -m tests.campaigns.no_false_fixed --report $(ARGS)

# Old public repositories: are their tests compared? Resumes where it stopped: ARGS="--clones DIR --label L --command PATH".
tests-judged: setup
	$(BIN)/python -m tests.campaigns.tests_judged --data $(or $(DATA),../shared/data) $(ARGS)

# Ten million events, 8 GB: made and verified once; half an hour. ARGS="--events 1000000 --place DIR".
bench-audit-memory: bench-setup
	$(BIN)/python -m tests.campaigns.bench.audit_memory --python $(BENCH)/ours/bin/python $(ARGS)

bench-fleet: setup
	$(BIN)/python -m tests.campaigns.bench.fleet $(ARGS)

FLEET := bench-results/fleet
fleet-simulation: setup
	$(BIN)/python -m tests.campaigns.fleet_simulation measure --folder $(FLEET)
	$(BIN)/python -m tests.campaigns.fleet_simulation predict --folder $(FLEET)
	for workers in 1 2 4; do $(BIN)/python -m tests.campaigns.fleet_simulation run --workers $$workers --folder $(FLEET) || exit; done
	$(BIN)/python -m tests.campaigns.fleet_simulation.scale $(FLEET)

bench-setup: setup $(BENCH)/.peers $(BENCH)/.aider
	rm -rf $(BENCH)/dist && $(BIN)/python -m hatchling build -t wheel -d $(BENCH)/dist > /dev/null
	test -x $(BENCH)/ours/bin/python || $(BIN)/uv venv --quiet --python $(PYTHON) $(BENCH)/ours
	$(BIN)/uv pip install --quiet --python $(BENCH)/ours/bin/python --constraint requirements.lock --compile-bytecode --reinstall-package fallback-tier "$$(ls $(BENCH)/dist/*.whl)[embeddings,postgres,serve]"

$(BENCH)/.peers: tests/campaigns/bench/requirements.lock
$(BENCH)/.aider: tests/campaigns/bench/requirements-aider.lock
$(BENCH)/.peers $(BENCH)/.aider: $(BENCH)/.%:
	test -x $(BENCH)/$*/bin/python || $(BIN)/uv venv --quiet --python $(PYTHON) $(BENCH)/$*
	$(BIN)/uv pip sync --quiet --python $(BENCH)/$*/bin/python --require-hashes --compile-bytecode $<
	touch $@

# Record every cassette again: MODEL_URL=http://127.0.0.1:8311 (tests/campaigns/local_model/serve.py), or a key.
record: setup
	$(BIN)/python tests/campaigns/local_model/record.py retry $(if $(MODEL_URL),--base-url $(MODEL_URL),--model $(MODEL))
	$(BIN)/python tests/campaigns/local_model/record.py demo $(if $(MODEL_URL),--base-url $(MODEL_URL),--model $(MODEL))
	$(BIN)/python tests/campaigns/local_model/record.py judged --base-url http://127.0.0.1

# The same for the registries' answers: asks the real ones for whatever the tests ask for now.
record-registry: setup
	env -u ANTHROPIC_API_KEY -u ANTHROPIC_AUTH_TOKEN -u ANTHROPIC_BASE_URL $(BIN)/python -m tests.registry.fetch --record $(ARGS)

lock:
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --extra demo --extra embeddings --extra eval --extra langgraph --extra mcp --extra postgres --extra serve --extra temporal --extra temporal-dev --group dev pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header tests/campaigns/bench/requirements.in -o tests/campaigns/bench/requirements.lock
	$(BIN)/uv pip compile --quiet --python-version 3.11 --python-platform linux --generate-hashes --no-emit-index-url --no-annotate --no-header tests/campaigns/bench/requirements-aider.in -o tests/campaigns/bench/requirements-aider.lock

clean:
	rm -rf $(VENV) .venv-demo $(BENCH) dist build bench-results .registry
