# The module list is written once, in go.work; everything here loops over it.
# Run `make help` for the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

MODULES := $(shell awk '/^\t\.\// {print $$1}' go.work)
# One module, for the targets that end in -module.
MODULE ?= core
# Flags of every test run. Results are not taken from the cache: tests here look at running servers
# and at the whole repository, which the cache does not see.
TESTFLAGS ?= -race -shuffle=on -count=1 -timeout=20m
# What the wire contract must stay compatible with.
BASE ?= $(shell git rev-parse --quiet --verify origin/main >/dev/null && ! git diff --quiet origin/main HEAD && echo origin/main || echo HEAD~1)

DEV := $(CURDIR)/bin/dev
TOOL = $(DEV)/$(1)

##@ Use

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The URL goes by the environment: arguments can be seen by everybody on the machine.
ifdef BACKEND
run: export FENCELOCK_LOCK_BACKEND := $(BACKEND)
endif
ifdef POSTGRES_URL
run: export FENCELOCK_POSTGRES_URL := $(value POSTGRES_URL)
endif

.PHONY: run
run: ## Start a lock server on 127.0.0.1:8470 with an embedded etcd under ./fencelock-data (or BACKEND=postgres POSTGRES_URL=postgres://…).
	go run ./apps/lockserver

# Where the demo and the drills keep their locks; their PostgreSQL is found as that of the tests is.
DRILL_BACKEND := $(or $(BACKEND),etcd)

.PHONY: demo
demo: ## Run the whole payout system once, 500 payouts by three executors, and judge it (or BACKEND=postgres).
	go run ./tools/drills/drill demo -backend=$(DRILL_BACKEND)

# grpcnotrace leaves out debug pages whose templates would keep every method of a program alive, and 7 MB of memory with them.
.PHONY: build
build: ## Build the programs into bin/.
	@mkdir -p bin
	go build -trimpath -tags=grpcnotrace -o bin/ ./apps/lockserver ./apps/lockctl ./apps/payout-executor ./apps/payments/cmd/...

##@ Test

.PHONY: test
test: images-if-docker ## Run all tests of all modules, against real stores.
	go test $(TESTFLAGS) work

.PHONY: test-module
test-module: ## Run the tests of one module as it stands alone (MODULE=adapters/etcd).
	cd $(MODULE) && GOWORK=off go test $(TESTFLAGS) ./...

.PHONY: e2e
e2e: images-if-docker ## Run the tests that start the real programs.
	go test $(TESTFLAGS) ./apps/... ./tools/drills/...

# Runs of each position of the switches.
RUNS ?= 20

.PHONY: fencing-experiment
fencing-experiment: ## Freeze an executor past its lease with calls on their way, in all positions of both fences (BACKEND=postgres, RUNS=20).
	go run ./tools/drills/drill experiment -backend=$(DRILL_BACKEND) -runs=$(RUNS)

.PHONY: outage-drill
outage-drill: ## Take the lock server away for 30 s under load, by SIGTERM and by SIGKILL (BACKEND=postgres).
	go run ./tools/drills/drill outage -backend=$(DRILL_BACKEND)

# What the report does with the document: -check or -write.
PARITY_DOCUMENT := -check

.PHONY: fix-parity
fix-parity: PARITY_DOCUMENT := -write
fix-parity: parity ## Run the parity suite on every backend and write docs/parity.md.

.PHONY: parity
parity: images-if-docker ## Run the parity suite on every backend and compare with docs/parity.md; `make fix-parity` writes it.
	@mkdir -p bin/parity
	-@go test $(TESTFLAGS) -json -run '^TestReference$$' ./contracts/parity >bin/parity/reference.json
	-@go test $(TESTFLAGS) -json -run '^TestParity$$' ./adapters/etcd >bin/parity/etcd.json
	-@go test $(TESTFLAGS) -json -run '^TestParity$$' ./adapters/postgres >bin/parity/postgres.json
	go run ./contracts/parity/report $(PARITY_DOCUMENT) docs/parity.md \
		reference=bin/parity/reference.json etcd=bin/parity/etcd.json postgres=bin/parity/postgres.json

.PHONY: bench
bench: ## Measure, and print what was measured (ARGS="wake|grants [--backend=etcd|postgres]"; default: wake).
	go run ./tools/bench $(or $(ARGS),wake)

.PHONY: images
images: ## Pull or build the container images that the tests use.
	@tools/testenv/images.sh

.PHONY: images-if-docker
images-if-docker:
	@if docker info >/dev/null 2>&1; then tools/testenv/images.sh || echo "images: tests start local processes instead"; \
	else echo "images: Docker is not running; tests start local processes"; fi

##@ Check

.PHONY: verify
verify: verify-format verify-tidy verify-build verify-vet verify-gen verify-proto lint ## Check everything but the tests.

.PHONY: lint
lint: $(call TOOL,golangci-lint) ## Run the linters over every module.
	@for m in $(MODULES); do echo "lint $$m"; (cd $$m && $(DEV)/golangci-lint run --config=$(CURDIR)/.golangci.yml ./...) || failed=1; done; [ -z "$${failed:-}" ]

.PHONY: verify-format
verify-format: ## Check that sources are formatted; `make fix-format` formats them.
	@found=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$found" ] || { echo "not formatted, run make fix-format:"; echo "$$found"; exit 1; }

.PHONY: fix-format
fix-format: ## Format sources.
	gofmt -w $$(git ls-files '*.go')

.PHONY: verify-tidy
verify-tidy: ## Check that each go.mod is tidy by itself; `make fix-tidy` tidies them.
	@for m in $(MODULES) ./tools/dev; do echo "tidy $$m"; (cd $$m && GOWORK=off go mod tidy -diff) || failed=1; done; \
	[ -z "$${failed:-}" ] || { echo "not tidy, run make fix-tidy"; exit 1; }

.PHONY: fix-tidy
fix-tidy: ## Tidy each go.mod.
	@for m in $(MODULES) ./tools/dev; do (cd $$m && GOWORK=off go mod tidy); done

.PHONY: verify-build
verify-build: ## Build each module by itself, outside the workspace.
	@for m in $(MODULES); do echo "build $$m"; (cd $$m && GOWORK=off go build -o /dev/null ./...) || failed=1; done; [ -z "$${failed:-}" ]

.PHONY: verify-vet
verify-vet: ## Run go vet over every module.
	go vet work

.PHONY: verify-gen
verify-gen: $(call TOOL,buf) $(call TOOL,protoc-gen-go) $(call TOOL,protoc-gen-connect-go) ## Check that generated code is as committed; `make gen` makes it.
	@out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; \
	(cd contracts/api && PATH="$(DEV):$$PATH" $(DEV)/buf generate --output "$$out") && \
	diff -r "$$out/fencelock" contracts/api/fencelock || { echo "generated code differs, run make gen"; exit 1; }

.PHONY: verify-proto
verify-proto: $(call TOOL,buf) ## Check the wire contract: lint, and nothing broken since BASE.
	cd contracts/api && $(DEV)/buf lint
	@if git cat-file -e $(BASE):contracts/api/buf.yaml 2>/dev/null; then \
		echo "buf breaking --against $(BASE)"; git archive $(BASE) contracts/api | (t=$$(mktemp -d) && trap 'rm -rf "$$t"' EXIT && tar -x -C "$$t" && \
		cd contracts/api && $(DEV)/buf breaking --against "$$t/contracts/api"); \
	else echo "buf breaking: $(BASE) has no wire contract to compare with"; fi

.PHONY: vuln
vuln: $(call TOOL,govulncheck) ## Look for known vulnerabilities that the code reaches; needs the network.
	@for m in $(MODULES); do echo "vuln $$m"; (cd $$m && GOWORK=off $(DEV)/govulncheck ./...) || failed=1; done; [ -z "$${failed:-}" ]

##@ Make

.PHONY: gen
gen: $(call TOOL,buf) $(call TOOL,protoc-gen-go) $(call TOOL,protoc-gen-connect-go) ## Generate code from the wire contract.
	cd contracts/api && PATH="$(DEV):$$PATH" $(DEV)/buf generate

.PHONY: modules
modules: ## Print the modules as a JSON list.
	@printf '%s\n' $(MODULES) | awk '{printf "%s\"%s\"", NR == 1 ? "[" : ",", substr($$0, 3)} END {print "]"}'

.PHONY: clean
clean: ## Remove what was built; data under ./fencelock-data stays.
	rm -rf bin

# Tools have their versions in tools/dev/go.mod and are built from it.
$(DEV)/%: tools/dev/go.mod tools/dev/go.sum
	@mkdir -p $(DEV)
	GOWORK=off go -C tools/dev build -o $@ $$(GOWORK=off go -C tools/dev list tool | grep '/$*$$')
	@touch $@
