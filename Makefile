# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

GO ?= go
# Cache of fetched and compiled files, by name and version.
CACHE := $(abspath $(or $(COMITY_CACHE),.cache))
export COMITY_CACHE := $(CACHE)
# How long an API server may take to start. The default of envtest, 20 s, is too short while compilers run.
export KUBEBUILDER_CONTROLPLANE_START_TIMEOUT ?= 90s
# Version that the programs print; by default that of the commit.
VERSION ?=
IMAGE ?= comity:dev
# Clusters of the demo: control planes as processes, or kind (needs Docker).
CLUSTERS ?= control-planes
ARGS ?=

# Everything is compiled as a release is, so that all share what is compiled, in whatever folder. By itself, Go writes
# that folder and what debuggers read into programs, and takes the C compiler's linker, which is slower.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -buildvcs=false '-ldflags=-s -w' $(GOFLAGS)
# The folder test is a module of its own. Its programs are compiled into bin and run in this folder, to which
# the paths are relative that they are given.
GO_TEST := $(GO) -C test test
program = $(GO) -C test build -o ../bin/ ./$(1)
run = $(call program,$(1)) && bin/$(notdir $(1))
RELEASE = $(call run,release/cmd/release) --version "$(VERSION)"
UNIT = $(shell $(GO) -C test list ./... | grep -vE '/test/(chart|envtest|e2e)(/|$$)')

CONTROLLER_GEN := $(CACHE)/bin/controller-gen-v0.23.0
GOLANGCI_LINT := $(CACHE)/bin/golangci-lint-v2.15.0
HELM := $(CACHE)/bin/helm-v3.22.0
HELM_UNITTEST := $(CACHE)/bin/helm-unittest-v1.1.2
HELM_DOCS := $(CACHE)/bin/helm-docs-v1.14.2
HELM_README := $(HELM_DOCS) --chart-search-root charts --sort-values-order file --log-level warning

## Everyday

.PHONY: help
help: ## List every target.
	@awk 'BEGIN {FS = ":.*## "} /^## / {printf "\n%s\n", substr($$0, 4)} /^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Run the demo with three clusters (CLUSTERS=kind, ARGS=--keep).
	$(call run,demo) --clusters $(CLUSTERS) $(ARGS)

.PHONY: check
check: lint unit ## Check format, lint, and run unit, Rego and scenario tests, without cluster or network.

# The packages that take longest mostly wait, so that three at a time keep two cores busy.
# Properties are checked with one seed, so that what passed passes again; RAPID_SEED=0 draws another.
.PHONY: unit
unit: export RAPID_SEED ?= 1
unit: ## Run unit, Rego and scenario tests.
	$(GO) test -p 3 -timeout 5m ./...
	$(GO_TEST) -p 3 -timeout 5m $(UNIT)

.PHONY: test
test: unit chart envtest ## Run all tests that need no root: unit, chart, and envtest.

.PHONY: chart
chart: $(HELM) $(HELM_UNITTEST) $(HELM_DOCS) ## Test the chart: lint, unit tests, README, and comparison with config.
	$(HELM) lint --strict --quiet charts/comity --set clusterID=cluster-1,clusterset=example
	$(HELM_UNITTEST) charts/comity
	@$(HELM_README) --dry-run | diff charts/comity/README.md - || { echo "charts/comity/README.md is not up to date; run make generate"; exit 1; }
	$(GO_TEST) -timeout 25m ./chart/...

# The longest suites start first, so that none of them runs alone in the end. Each waits more
# than half of its time, so that four at a time keep two cores busy. No result is taken from a cache, which
# does not know when the agent that a suite starts has changed.
SUITES := $(addprefix ./envtest/,faults agent hub sync join hostile policies spec peer ...)

# API servers, which take most of the processors, collect garbage less often than by themselves, and each program
# runs on one processor: with a dozen programs for each of two, that takes a sixth less CPU time.
.PHONY: envtest
envtest: export GOGC ?= 300
envtest: export GOMAXPROCS ?= 1
envtest: ## Run the suites on real API servers; the first run fetches or builds the binaries.
	$(call run,clusters/cmd/binaries)
	KUBEBUILDER_ASSETS="$${KUBEBUILDER_ASSETS:-$$(bin/binaries --print-assets)}" \
		$(GO_TEST) -timeout 20m -count=1 -p 4 $(ARGS) $(SUITES)

# The suites that depend most on the API server: admission, definitions, server-side apply, watches.
OLDEST := manifests webhook status sync policies plan peer join

.PHONY: test-oldest
test-oldest: export COMITY_KUBERNETES := oldest
test-oldest: ## Run some suites on the oldest supported Kubernetes; the first run compiles it in 15 minutes.
	$(call program,clusters/cmd/binaries)
	KUBEBUILDER_ASSETS="$$(env -u KUBEBUILDER_ASSETS bin/binaries --print-assets)" \
		$(GO_TEST) -timeout 20m -count=1 -p 2 $(ARGS) $(addprefix ./envtest/,$(OLDEST))

# How many processes run the end-to-end tests on the same two clusters: most of their time is waiting.
E2E_PROCS ?= 3
# A file that is there once the specs on two clusters that run side by side have ended. Those that
# remain wait most of the time: the chart is tried then, on a cluster of its own.
export COMITY_E2E_SERIAL := $(abspath bin/e2e-serial)

.PHONY: e2e
e2e: ## Follow docs/install.md in kind clusters and run the end-to-end tests (needs Docker).
	@mkdir -p bin && rm -f $(COMITY_E2E_SERIAL)
	$(MAKE) -j2 e2e-clusters e2e-chart

.PHONY: e2e-clusters
e2e-clusters:
	$(GO) -C test tool ginkgo -v --no-color --procs $(E2E_PROCS) $(ARGS) ./e2e; status=$$?; touch $(COMITY_E2E_SERIAL); exit $$status

.PHONY: e2e-chart
e2e-chart:
	@set -o pipefail; until [ -e $(COMITY_E2E_SERIAL) ]; do sleep 1; done; \
		$(GO_TEST) -timeout 30m -v ./e2e/chart 2>&1 | sed -u 's/^/chart: /'

.PHONY: clusters
clusters: ## Start clusters to try things in, until Ctrl-C (ARGS="--count 2 --kind --family ipv6").
	$(call run,clusters/cmd/clusters) up $(ARGS)

.PHONY: bench
bench: ## Measure propagation, memory, writes, restarts and a hostile member (ARGS="propagation --changes 200", "--write docs", ...).
	$(call run,bench) $(ARGS)

## Code

.PHONY: build
build: ## Compile bin/comity and bin/kubectl-comity.
	$(RELEASE) build

.PHONY: image
image: ## Build the container image in dist for all platforms, and load it as $(IMAGE) if Docker runs.
	$(RELEASE) image --load $(IMAGE)

.PHONY: dist
dist: ## Build all files of a release in dist: image, kubectl plugin, krew manifest, chart, schemas, SHA256SUMS.
	$(RELEASE) dist

.PHONY: reproducible
reproducible: ## Build a release twice, here and in a clone, and compare the checksums.
	@test -z "$$(git status --porcelain)" || { echo "there are uncommitted changes: commit or stash them"; exit 1; }
	$(RELEASE) dist
	@set -e; clone=$$(mktemp -d); trap 'rm -rf "$$clone"' EXIT; \
		git clone --quiet . "$$clone/comity"; \
		bin/release --version "$(VERSION)" --root "$$clone/comity" dist >/dev/null; \
		diff dist/SHA256SUMS "$$clone/comity/dist/SHA256SUMS"; \
		echo "both releases are identical"

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Check format and lint.
	$(GOLANGCI_LINT) run
	cd test && $(GOLANGCI_LINT) run
	$(GOLANGCI_LINT) fmt --diff

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## Format the source files.
	$(GOLANGCI_LINT) fmt

.PHONY: generate
generate: $(CONTROLLER_GEN) $(HELM_DOCS) ## Generate deep copies, CRDs, ExportPolicies, parts of the chart, and references.
	$(CONTROLLER_GEN) object:headerFile=.boilerplate.go.txt paths=./policies/v1alpha1/... paths=./sync/exchange/v1alpha1/... paths=./sync/model
	$(CONTROLLER_GEN) crd:allowDangerousTypes=false paths=./policies/v1alpha1/... paths=./sync/exchange/v1alpha1/... output:crd:dir=config/crd
	$(call run,tools/manifests)
	$(call run,tools/reference) docs
	$(HELM_README)

.PHONY: verify
verify: generate ## Check that generated files and modules are up to date, lint, and run the tests.
	$(GO) mod tidy
	$(GO) -C test mod tidy
	git diff --exit-code
	$(MAKE) lint test

.PHONY: clean
clean: ## Delete all fetched and compiled files.
	rm -rf .cache bin dist

## Tools with pinned versions, compiled once from the module proxy

$(CONTROLLER_GEN):
	@echo "building $(@F)"
	@$(GO) build -modfile=test/tools/controllergen.mod -o $@ sigs.k8s.io/controller-tools/cmd/controller-gen

$(GOLANGCI_LINT):
	@echo "building $(@F)"
	@$(GO) build -modfile=test/tools/golangcilint.mod -ldflags "-s -w -X main.version=2.15.0" -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(HELM):
	@echo "building $(@F)"
	@$(GO) build -modfile=test/tools/helm.mod -ldflags "-s -w -X helm.sh/helm/v3/internal/version.version=v3.22.0" -o $@ helm.sh/helm/v3/cmd/helm

$(HELM_UNITTEST):
	@echo "building $(@F)"
	@$(GO) build -modfile=test/tools/helmunittest.mod -o $@ github.com/helm-unittest/helm-unittest/cmd/helm-unittest

$(HELM_DOCS):
	@echo "building $(@F)"
	@$(GO) build -modfile=test/tools/helmdocs.mod -o $@ github.com/norwoodj/helm-docs/cmd/helm-docs
