# Waterline. `make help` lists the targets.

SHELL := /bin/bash -o pipefail
OUT := out
BIN := $(OUT)/bin
VERSION ?= $(shell git describe --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(shell git rev-parse --short HEAD 2>/dev/null)
GOLANGCI := $(BIN)/golangci-lint
GOLANGCI_VERSION := v2.15.0
CONTROLLER_GEN := $(BIN)/controller-gen
CONTROLLER_GEN_VERSION := v0.21.0
CRDS := crd:generateEmbeddedObjectMeta=true
DEFAULTS := internal/observe/kube/defaults.json
export CGO_ENABLED := 0
# Without paths in what is compiled, a clone in another folder compiles nothing again. Debug information takes a sixth of the
# CPU time of compilers, and what is built here is released without it too.
REPRODUCIBLE := -trimpath -gcflags=all=-dwarf=false
export GOFLAGS := $(filter-out $(REPRODUCIBLE),$(shell go env GOFLAGS)) $(REPRODUCIBLE)
# With a heap that grows up to a limit, compilers and linters need a quarter less CPU time. Programs under test do not get it,
# because some tests measure memory.
FAST := GOGC=off GOMEMLIMIT=2GiB

# With VERBOSE, tests name each test with its time. test/levels.sh sets it, and sums up its logs.
V := $(if $(VERBOSE),-test.v)
GO_TEST := go test -vet=off -count=1 $(if $(VERBOSE),-v)

.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build waterline, waterline-agent, waterline-manager, waterline-guard and the lab into out/bin
	@mkdir -p $(BIN)
	$(FAST) go build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/... ./lab

demo: build ## a full machine with a server that does not notice, and weights, on this kernel (root, about 90 s)
	$(BIN)/waterline demo

demo-vm: build vm ## the same on cgroup v2, in a virtual machine
	$(VMRUN) -file $(BIN)/waterline=/bin/waterline -file $(BIN)/waterline-agent=/bin/waterline-agent \
		-o $(OUT)/demo-vm -- /bin/waterline demo --out /out

test: ## a few tests of every level: 20 minutes on a new machine, 9 on a known one (root)
	test/levels.sh test

test-all: ## all tests of all levels, in short forms: about an hour (root)
	test/levels.sh all

soak: ## all tests in their full forms: hours (root)
	test/levels.sh soak

check: format lint test-unit ## format, lint, generated files, fences and unit tests

format:
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not formatted: $$unformatted; run gofmt -w"; exit 1; fi

vet:
	$(FAST) go vet -tags bench -composites=false ./... # lint judges composites, and knows exceptions

# The module k8s/ needs Kubernetes compiled, which takes minutes on a new machine; the test bed needs that too.
lint: $(GOLANGCI) generated ## golangci-lint on both modules, with go vet among its linters, and generated files
	$(FAST) $(GOLANGCI) run ./...
	cd k8s && $(FAST) $(CURDIR)/$(GOLANGCI) run --config $(CURDIR)/.golangci.yml ./...

$(GOLANGCI):
	@mkdir -p $(BIN)
	$(FAST) GOBIN=$(CURDIR)/$(BIN) go install \
		github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

generate: $(CONTROLLER_GEN) ## make deep copies, custom resource definitions and docs/api.md from api/
	$(CONTROLLER_GEN) object $(CRDS) paths=./api/... output:crd:dir=deploy/chart/crds
	go run ./test/crds deploy/chart/crds $(DEFAULTS)
	go run ./test/apidocs

# Generates into another folder, so that a check changes nothing.
generated: $(CONTROLLER_GEN)
	@made=$$(mktemp -d) && trap 'rm -rf "$$made"' EXIT && \
	$(CONTROLLER_GEN) object $(CRDS) paths=./api/... output:crd:dir=$$made/crds output:object:dir=$$made && \
	$(FAST) go run ./test/crds $$made/crds $$made/defaults.json && diff $$made/defaults.json $(DEFAULTS) && \
	diff -r $$made/crds deploy/chart/crds && \
	diff $$made/zz_generated.deepcopy.go api/v1alpha1/zz_generated.deepcopy.go || \
	{ echo "generated files are out of date; run make generate"; exit 1; }

$(CONTROLLER_GEN):
	@mkdir -p $(BIN)
	$(FAST) GOBIN=$(CURDIR)/$(BIN) go install sigs.k8s.io/controller-tools/cmd/controller-gen@$(CONTROLLER_GEN_VERSION)

# What make test runs of each level. SHORT=1 selects it for one level: make test-kernel SHORT=1. Tests with -short do fewer
# of the same steps. Everything else is in make test-all.
SHORT_KERNEL := Agent Rejected NoHotLoop TwoAgents Restore DamagedRecord NoAllocations ReservedMemory MemoryMax \
	MemoryInUse Batch Doctor ReadOnly BadStart Shares Idle BurstOfQuota Quota Gone Watch Overflow \
	NoWatches Mount FullDisk IdleBatch Kill CPUSets MeterUsage MeterAllocations StartsWithoutTheAPI \
	OwnWeight FirstInstruction
SHORT_VM := Agent TwoAgents Restore DamagedRecord NoAllocations ReservedMemory MemoryMax MemoryInUse Batch \
	ReadOnly BadStart Shares Idle BurstOfQuota Quota Gone Watch FullDisk IdleBatch Kill MeterUsage \
	ProtectMemory FirstInstruction
SHORT_API := API APIEvents APIGreedy APIHostile APIWebhook APIChart APIConfinedNode APIConfinedPod APIConfinedReport \
	APIPolicyRules APIPoolSpecs APIReach APIReachKubelets APIReachCgroups APIUninstall APIPool
SHORT_NODE := Node NodeSell NodeFarewell
SHORT_SCHEDULER := SchedulerArguments SchedulerPlaces
SHORT_YARN := LabelBeforeNode PartitionOfSubmission Resize ResizeMany ResizeDeadline Job
# any is a regular expression for one of some tests, which are named without the word Test.
empty :=
any = ^Test($(subst $(empty) ,|,$(strip $(1))))$$
# form is how a compiled test runs: in short, the tests of the first argument, else what the second says.
form = $(V) $(if $(SHORT),-test.short -test.run='$(1)',$(2))

# Unit tests are those of all packages but the test bed's levels. The lab's own tests need no kernel.
UNIT = $$(go list ./... | grep -vE '/test/(bed|e2e|kernel|release|yarn|trino)')

# go list compiles the packages and their tests; go test then only links.
test-unit: ## level 1: the tests that need no kernel
	$(FAST) go list -export -deps -test $(UNIT) >/dev/null
	$(GO_TEST) $(if $(SHORT),-short) $(UNIT)

test-pure: format vet generated test-unit

# Programs for arm64, in an emulator of processes: the kernel stays this machine's. Transcripts show that decisions are the
# same there, where multiplications and additions of floats are fused. All of them take five minutes in the emulator, and
# other tests of decisions longer.
EMULATOR := qemu-aarch64-static

test-arm64: ## unit tests of programs for arm64, in an emulator (qemu-user-static)
	GOARCH=arm64 $(FAST) $(GO_TEST) -exec $(EMULATOR) ./internal/cgroup/... ./internal/model/...
	GOARCH=arm64 $(FAST) $(GO_TEST) -exec $(EMULATOR) -run Transcripts ./internal/decide/node/shed \
		$(if $(WATERLINE_SOAK),./internal/decide/node)

# The agent is the emulated program. Load and measurement are this machine's own, and so are kernel and cgroups.
test-arm64-agent: build kernel-test ## experiments of the lab with an agent for arm64, in an emulator (root, qemu-user-static)
	@mkdir -p $(OUT)/arm64/bin
	GOARCH=arm64 $(FAST) go build -ldflags '$(LDFLAGS)' -o $(OUT)/arm64/ ./cmd/waterline-agent
	printf '#!/bin/sh\nexec $(EMULATOR) $(CURDIR)/$(OUT)/arm64/waterline-agent "$$@"\n' >$(OUT)/arm64/bin/waterline-agent
	chmod +x $(OUT)/arm64/bin/waterline-agent
	ln -sf $(CURDIR)/$(BIN)/lab $(OUT)/arm64/bin/lab
	cd test/kernel && WATERLINE_BIN=$(CURDIR)/$(OUT)/arm64/bin $(CURDIR)/$(KERNEL_TEST) $(V) -test.timeout=30m \
		-test.run 'TestKill|TestExperiments/^(weights|preempt|drift)$$'

race: ## the unit, scheduler and live kernel tests under the race detector
	CGO_ENABLED=1 go test -race $(UNIT) ./test/kernel
	CGO_ENABLED=1 go test -C k8s -race ./scheduler

# Tests that several levels use are compiled once. They expect their package's folder as the working directory.
KERNEL_TEST := $(OUT)/test/kernel.test
E2E_TEST := $(OUT)/test/e2e.test
E2E := cd test/e2e && $(CURDIR)/$(E2E_TEST) -test.timeout=1h

kernel-test:
	@mkdir -p $(OUT)/test
	$(FAST) go test -c -vet=off -o $(KERNEL_TEST) ./test/kernel

e2e-test:
	@mkdir -p $(OUT)/test
	$(FAST) go test -c -vet=off -o $(E2E_TEST) ./test/e2e

test-kernel: build kernel-test ## level 2: this machine's kernel (root)
	cd test/kernel && WATERLINE_BIN=$(CURDIR)/$(BIN) $(CURDIR)/$(KERNEL_TEST) -test.timeout=30m $(call form,$(call any,$(SHORT_KERNEL)))

VMRUN := $(BIN)/vmrun

vm:
	@mkdir -p $(BIN)
	$(FAST) go build -o $(BIN)/ ./test/bed/vm/cmd/vmrun

test-vm: build vm kernel-test ## level 3: the same suite on cgroup v2, in a virtual machine; in full form with the demo
	$(if $(SHORT),,$(GO_TEST) ./test/bed/vm/...)
	$(VMRUN) -file $(KERNEL_TEST)=/t/kernel.test -file $(BIN)/waterline=/bin/waterline \
		-file $(BIN)/waterline-agent=/bin/waterline-agent -file $(BIN)/lab=/bin/lab -module brd \
		-e CI=$(CI) -e WATERLINE_SOAK=$(WATERLINE_SOAK) -e WATERLINE_BIN=/bin \
		-timeout $(if $(WATERLINE_SOAK),3h,30m) -o $(OUT)/test/vm \
		-run 'kernel: /t/kernel.test $(V) $(if $(SHORT),-test.short -test.run="$(call any,$(SHORT_VM))",-test.skip=^TestCPU)' \
		$(if $(WATERLINE_SOAK),-run 'demo: /bin/waterline demo --out /out')

test-vm-cpus: vm kernel-test ## level 3: CPU sets in a virtual machine of 2 sockets, 4 NUMA nodes, 8 CPUs
	$(VMRUN) -topology 2x2x1x2 -file $(KERNEL_TEST)=/t/kernel.test -e CI=$(CI) -e WATERLINE_SOAK=$(WATERLINE_SOAK) \
		-timeout $(if $(WATERLINE_SOAK),1h,10m) \
		-run 'cpusets: /t/kernel.test -test.run ^TestCPU -test.v -test.timeout 1h'

bed: build ## build the test bed's cluster: Kubernetes, containerd, images
	test/bed/build.sh core

bed-%: build
	test/bed/build.sh core $*

# The comparison with the kubelet's own choice of CPUs compiles little that bed has not compiled.
test-api: e2e-test bed $(if $(SHORT),,previous) ## level 4: a real API server, and parts of Kubernetes as the reference
	$(if $(SHORT),,cd k8s && $(GO_TEST) -timeout 20m ./reference)
	$(GO_TEST) ./test/bed/fakerm
	$(if $(SHORT),,$(GO_TEST) ./test/bed/cluster -run API)
	$(E2E) $(call form,$(call any,$(SHORT_API)),-test.run=TestAPI -test.skip=TestAPIPool) -on=api

# They wait for minutes, so they have a level of their own beside the others.
test-api-pools: e2e-test bed ## level 4: worker pools with a real API server, and all else imitated
	$(E2E) $(V) -test.run=TestAPIPool -on=apart

previous: bed ## build the version before this one, for tests that run both
	test/bed/previous.sh

OLDEST := TestAPI$$|TestAPIAway|TestAPIConfined|TestAPINodeHealth$$|TestAPIWebhook$$

test-oldest: e2e-test bed ## levels 4 and 5a on the oldest supported Kubernetes (root; six minutes to build it)
	test/bed/oldest.sh
	$(E2E) $(V) -test.run='$(OLDEST)' -on=api -bin=bed/oldest/bin
	$(E2E) $(V) -test.run='TestNodeKubeletSettings|TestNode$$|TestNodeSell' -bin=bed/oldest/bin

AXE_VERSION := 4.14.1
AXE := $(OUT)/axe/node_modules/axe-core/axe.min.js

$(AXE):
	npm install --silent --no-save --no-audit --no-fund --ignore-scripts --prefix $(OUT)/axe axe-core@$(AXE_VERSION)

test-web: $(AXE) ## level 4: the dashboard in a browser
	$(GO_TEST) -timeout 10m ./internal/web -axe $(CURDIR)/$(AXE) $(if $(SHOTS),-shots $(CURDIR)/$(SHOTS))

test-scheduler: e2e-test bed ## level 7: the scheduler with its plugins, on nodes that are only objects (root)
	cd k8s && $(GO_TEST) -timeout 10m $(if $(SHORT),-short) ./scheduler
	$(E2E) $(call form,$(call any,$(SHORT_SCHEDULER)),-test.run=TestScheduler) -on=apart

# Tests whose pods must wait for CPUs, or find them idle, as they would on a machine of their own.
NODE_ALONE := ^TestNode(Harm|Quickstart|QuickstartPulled)$$

test-node: e2e-test $(if $(SHORT),bed,bed-ffmpeg previous) ## level 5a: pods on a real node on this machine (root)
	$(if $(SHORT),,$(GO_TEST) ./test/bed/cluster -run Node)
	$(E2E) $(call form,$(call any,$(SHORT_NODE)),-test.run=TestNode -test.skip='$(NODE_ALONE)')

test-node-alone: e2e-test bed ## the tests of level 5a for a machine that does nothing else (root)
	$(E2E) $(V) -test.run='$(NODE_ALONE)'

test-node-static: e2e-test bed ## level 5a with a kubelet that gives containers exclusive CPUs (root)
	$(E2E) $(V) -test.timeout=10m -test.run=TestStatic -on=static

vmnode: bed-runc ## build the root file system of the node in a virtual machine (root)
	test/bed/vmnode/build.sh

test-node-v2: e2e-test vmnode previous ## level 5b: pods on a real node with cgroup v2 and systemd, in a virtual machine (root)
	$(E2E) $(V) -test.timeout=90m -test.run=TestNode -on=vm

YARN_TEST := cd test/yarn && WATERLINE_BIN=$(CURDIR)/$(BIN) $(CURDIR)/$(OUT)/test/yarn.test -test.timeout=1h

yarn-bed: ## build the test bed's YARN: Hadoop through Maven, half a minute on a new machine
	@mkdir -p $(BIN) $(OUT)/test
	test/bed/yarn/build.sh
	$(FAST) go build -o $(BIN)/ ./test/bed/cmd/yarn ./cmd/waterline
	$(FAST) go test -c -vet=off -o $(OUT)/test/yarn.test ./test/yarn

yarn: yarn-bed ## a ResourceManager and two NodeManagers of Hadoop on this machine until ^C (root)
	$(BIN)/yarn up

spark: ## get Spark from PyPI: 520 MB, half a minute on a new machine
	test/bed/yarn/build.sh spark

test-yarn: yarn-bed $(if $(SHORT),,spark) ## level 6: real YARN, with jobs (root, Java 17, Maven, krb5-kdc, Python)
	$(if $(SHORT),,$(GO_TEST) ./test/bed/yarn)
	$(YARN_TEST) $(call form,$(call any,$(SHORT_YARN)))
	$(if $(SHORT),,$(YARN_TEST) $(V) -pair -test.run=TestPair)
	$(if $(SHORT),,$(YARN_TEST) $(V) -kerberos -test.run=TestKerberos)
	$(if $(SHORT),,$(YARN_TEST) $(V) -fair -test.run=TestFair)

test-yarn-v2: yarn-bed vm ## level 6: the guard beside a real NodeManager on cgroup v2, in a virtual machine (Java 17, Maven)
	$(VMRUN) -mem 5120 $$(test/bed/yarn/image.sh guest) -file $(OUT)/yarn/lib=/w/out/yarn/lib \
		-file $(OUT)/test/yarn.test=/w/out/test/yarn.test -timeout 1h -o $(OUT)/test/yarn-v2 \
		-run 'yarn: mkdir -p /w/test/yarn && cd /w/test/yarn && \
			PATH=$$PATH:/opt/java/bin ../../out/test/yarn.test $(V) -test.timeout=1h -test.run=TestGuardMemory'

test-yarn-pools: e2e-test bed yarn-bed ## level 6c: worker pools of real NodeManagers, without a node (root, Java 17, Maven, krb5-kdc)
	$(E2E) $(V) -test.timeout=$(if $(WATERLINE_SOAK),8h,30m) -test.run=TestPool -on=yarn
	$(E2E) $(V) -test.run=TestKerberosPool -on=yarn -kerberos
	$(if $(WATERLINE_SOAK),$(E2E) $(V) -test.run=TestPoolPair -on=yarn -pair)

trino-bed: ## build the test bed's Trino: through Maven, a minute on a new machine
	@mkdir -p $(OUT)/test
	test/bed/trino/build.sh
	$(FAST) go test -c -vet=off -o $(OUT)/test/trino.test ./test/trino

test-trino: trino-bed ## level 6: workers of a real Trino drain while queries run (root, Java 17, Maven)
	cd test/trino && $(CURDIR)/$(OUT)/test/trino.test $(V) -test.timeout=$(if $(WATERLINE_SOAK),3h,30m)

test-trino-pools: e2e-test bed trino-bed ## level 6c: a worker pool of real workers of Trino, without a node (root, Java 17, Maven)
	$(E2E) $(V) -test.run=TestTrinoPool -on=trino

hadoop-image: yarn-bed ## build the container image of Hadoop (seconds)
	test/bed/yarn/image.sh

frameworks: ## build controllers of batch frameworks from their modules: minutes on a new machine
	test/bed/frameworks.sh

test-frameworks: e2e-test bed frameworks ## level 4: batch pods with the real Kueue and autoscaler (root)
	$(E2E) $(V) -test.run=TestFrameworks -on=api

spark-image: spark ## build the container image of Spark's executors (seconds)
	test/bed/yarn/image.sh spark

test-node-yarn: e2e-test bed-dns hadoop-image spark-image ## level 6b: NodeManagers and Spark's executors in pods of a real node (root, Java 17, Maven, Python)
	$(E2E) $(V) -test.run='TestYARN|TestSpark'

# A release. VERSION is its version without v, such as 0.2.0; REGISTRY a registry to push to, with a path if it has one; KEY
# a key of cosign to sign with, and COSIGN_PASSWORD its password.
RELEASE := VERSION='$(VERSION)' REGISTRY='$(REGISTRY)' KEY='$(KEY)' PLAIN_HTTP='$(PLAIN_HTTP)' deploy/release.sh
COSIGN := $(BIN)/cosign
COSIGN_VERSION := v3.1.3
HELM := $(BIN)/helm

images: $(if $(KEY),$(COSIGN)) ## build images for amd64 and arm64 into out/release/images; with REGISTRY=host/path, push them
	$(FAST) $(RELEASE) images

release: $(HELM) $(if $(KEY),$(COSIGN)) ## build everything that a release publishes into out/release: VERSION=0.2.0 [REGISTRY=…] [KEY=…]
	$(FAST) $(RELEASE) all

# Without cosign, nothing is signed. It takes many minutes to build, so only CI, which skips nothing, builds it.
test-release: $(HELM) $(if $(CI),$(COSIGN)) ## make a release twice, push it to a real registry, and use it (docker-registry, skopeo; with cosign: make out/bin/cosign)
	$(GO_TEST) -timeout 60m ./test/release

# The test bed builds Helm too, together with Kubernetes.
$(HELM):
	@mkdir -p $(BIN)
	$(FAST) go -C k8s build -o $(CURDIR)/$(HELM) -ldflags '-s -w' helm.sh/helm/v4/cmd/helm

$(COSIGN):
	@mkdir -p $(BIN)
	$(FAST) GOBIN=$(CURDIR)/$(BIN) go install -ldflags '-s -w' github.com/sigstore/cosign/v3/cmd/cosign@$(COSIGN_VERSION)

GOVULNCHECK_VERSION := v1.9.0

vuln: ## known vulnerabilities that both modules reach
	$(FAST) go run golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION) ./...
	cd k8s && $(FAST) go run golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION) ./...

bench: build ## measure what docs/results.md reports, into out/bench; NAME=colocate measures one, and an interrupted run goes on
	test/bench.sh $(NAME)

results: ## write docs/results.md from docs/results.json, updated from out/bench
	go run ./test/results

cluster: bed-dns bed-ffmpeg ## a single-node Kubernetes on this machine with Waterline installed (root)
	test/bed/cluster.sh up

cluster-down: ## remove every trace of it
	test/bed/cluster.sh down

packages:
	@test/bed/packages.sh

clean: ## remove everything that was built
	rm -rf $(OUT)

.PHONY: help build demo demo-vm test test-all soak check format vet lint generate generated test-unit test-pure race \
	kernel-test e2e-test test-kernel vm test-vm test-vm-cpus bed previous vmnode test-api test-api-pools \
	test-oldest test-node test-node-alone test-node-static test-node-v2 yarn-bed yarn spark test-yarn test-yarn-v2 \
	test-yarn-pools trino-bed test-trino test-trino-pools hadoop-image spark-image frameworks test-frameworks test-node-yarn test-scheduler test-web images \
	release test-release test-arm64 test-arm64-agent vuln bench results cluster cluster-down packages clean
