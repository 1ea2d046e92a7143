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
export CGO_ENABLED := 0
# With a larger heap, compilers and linters need a quarter less CPU time. Programs under test do not get it, because some tests
# measure memory.
FAST := GOGC=400 GOMEMLIMIT=3GiB

.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build waterline, waterline-agent, waterline-manager and the lab into out/bin
	@mkdir -p $(BIN)
	$(FAST) go build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/... ./test/lab

demo: build ## a full machine with a server that does not notice, and weights, on this kernel (root, about 90 s)
	$(BIN)/waterline demo

demo-vm: build vm ## the same on cgroup v2, in a virtual machine
	$(VMRUN) -file $(BIN)/waterline=/bin/waterline -file $(BIN)/waterline-agent=/bin/waterline-agent \
		-o $(OUT)/demo-vm -- /bin/waterline demo --out /out

test: ## everything, in short forms: all levels of the test bed (root; under an hour on a new machine)
	test/levels.sh short

soak: ## the same tests in their full forms (hours)
	test/levels.sh full

check: format lint test-unit ## format, lint, generated files, fences and unit tests: under two minutes

format:
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not formatted: $$unformatted; run gofmt -w"; exit 1; fi

vet:
	go vet ./...

lint: $(GOLANGCI) generated ## golangci-lint, with go vet among its linters, and generated files
	$(FAST) $(GOLANGCI) run ./...

$(GOLANGCI):
	@mkdir -p $(BIN)
	$(FAST) GOBIN=$(CURDIR)/$(BIN) go install \
		github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

generate: $(CONTROLLER_GEN) ## make deep copies and custom resource definitions from api/
	$(CONTROLLER_GEN) object crd paths=./api/... output:crd:dir=deploy/chart/crds

# Generates into another folder, so that a check changes nothing.
generated: $(CONTROLLER_GEN)
	@made=$$(mktemp -d) && trap 'rm -rf "$$made"' EXIT && \
	$(CONTROLLER_GEN) object crd paths=./api/... output:crd:dir=$$made/crds output:object:dir=$$made && \
	diff -r $$made/crds deploy/chart/crds && \
	diff $$made/zz_generated.deepcopy.go api/v1alpha1/zz_generated.deepcopy.go || \
	{ echo "generated files are out of date; run make generate"; exit 1; }

$(CONTROLLER_GEN):
	@mkdir -p $(BIN)
	$(FAST) GOBIN=$(CURDIR)/$(BIN) go install sigs.k8s.io/controller-tools/cmd/controller-gen@$(CONTROLLER_GEN_VERSION)

# Unit tests are those of all packages but the test bed's levels. The lab's own tests need no kernel.
UNIT = $$(go list ./... | grep -vE '/test/(bed|e2e|kernel|yarn)')

# go list compiles the packages and their tests; go test then only links. Lint runs vet, which in go test would read every
# dependency once more.
test-unit: ## level 1: the tests that need no kernel
	$(FAST) go list -export -deps -test $(UNIT) >/dev/null
	go test -vet=off $(UNIT)

test-pure: format test-unit

race: ## the unit and live kernel tests under the race detector
	CGO_ENABLED=1 go test -race $(UNIT) ./test/kernel

# Tests that several levels use are compiled once. They expect their package's folder as the working directory.
KERNEL_TEST := $(OUT)/test/kernel.test
E2E_TEST := $(OUT)/test/e2e.test
E2E := cd test/e2e && $(CURDIR)/$(E2E_TEST) -test.timeout=40m

kernel-test:
	@mkdir -p $(OUT)/test
	$(FAST) go test -c -vet=off -o $(KERNEL_TEST) ./test/kernel

e2e-test:
	@mkdir -p $(OUT)/test
	$(FAST) go test -c -vet=off -o $(E2E_TEST) ./test/e2e

test-kernel: build kernel-test ## level 2: this machine's kernel (root)
	cd test/kernel && WATERLINE_BIN=$(CURDIR)/$(BIN) $(CURDIR)/$(KERNEL_TEST) -test.timeout=30m

VMRUN := $(BIN)/vmrun

vm:
	@mkdir -p $(BIN)
	$(FAST) go build -o $(BIN)/ ./test/bed/vm/cmd/vmrun

test-vm: build vm kernel-test ## level 3: the same suite and the demo on cgroup v2, in a virtual machine
	go test -vet=off -count=1 ./test/bed/vm/...
	$(VMRUN) -file $(KERNEL_TEST)=/t/kernel.test -file $(BIN)/waterline=/bin/waterline \
		-file $(BIN)/waterline-agent=/bin/waterline-agent -file $(BIN)/lab=/bin/lab -module brd \
		-e CI=$(CI) -e WATERLINE_SOAK=$(WATERLINE_SOAK) -e WATERLINE_BIN=/bin \
		-timeout $(if $(WATERLINE_SOAK),3h,30m) -o $(OUT)/test/vm \
		-run 'kernel: /t/kernel.test -test.skip ^TestCPU' -run 'demo: /bin/waterline demo --out /out'

test-vm-cpus: vm kernel-test ## level 3: CPU sets in a virtual machine of 2 sockets, 4 NUMA nodes, 8 CPUs
	$(VMRUN) -topology 2x2x1x2 -file $(KERNEL_TEST)=/t/kernel.test -e CI=$(CI) -e WATERLINE_SOAK=$(WATERLINE_SOAK) \
		-timeout $(if $(WATERLINE_SOAK),1h,10m) \
		-run 'cpusets: /t/kernel.test -test.run ^TestCPU -test.v -test.timeout 1h'

# At nice 19 it can run beside level 3, whose tests measure how slow their machine is.
bed: build ## build the test bed's cluster: Kubernetes, containerd, images
	nice -n 19 test/bed/build.sh

# The comparison with the kubelet's own choice of CPUs is here because bed compiles most of its dependencies. Vet would read all
# of them once more, for a minute.
test-api: e2e-test bed ## level 4: a real API server, and parts of Kubernetes as the reference
	go test -C k8s -vet=off -count=1 -timeout 20m ./reference
	go test -vet=off -count=1 ./test/bed/fakerm
	go test -vet=off -count=1 ./test/bed/cluster -run API
	$(E2E) -test.run=TestAPI -test.skip='$(FIGURES)' -on=api

FIGURES := Figures|Prometheus|Colocate|Headline|Measure

test-api-figures: e2e-test bed ## the measurements of level 4, for a machine that does nothing else
	$(E2E) -test.run='TestAPI.*($(FIGURES))' -on=api

test-node: e2e-test bed ## level 5a: pods on a real node on this machine (root)
	go test -vet=off -count=1 ./test/bed/cluster -run Node
	$(E2E) -test.run=TestNode -test.skip='$(FIGURES)'

test-node-figures: e2e-test bed ## the measurements of level 5a, for a machine that does nothing else (root)
	$(E2E) -test.run='TestNode.*($(FIGURES))'

test-node-static: e2e-test bed ## level 5a with a kubelet that gives containers exclusive CPUs (root)
	$(E2E) -test.timeout=10m -test.run=TestStatic -on=static

test-node-v2: e2e-test bed ## level 5b: pods on a real node with cgroup v2 and systemd, in a virtual machine (root)
	$(E2E) -test.timeout=90m -test.run=TestNode -on=vm

YARN_TEST := cd test/yarn && WATERLINE_BIN=$(CURDIR)/$(BIN) $(CURDIR)/$(OUT)/test/yarn.test -test.timeout=30m

yarn-bed: ## build the test bed's YARN: Hadoop through Maven, half a minute on a new machine
	@mkdir -p $(BIN) $(OUT)/test
	test/bed/yarn/build.sh $(if $(WATERLINE_SOAK),spark)
	$(FAST) go build -o $(BIN)/ ./test/bed/cmd/yarn ./cmd/waterline
	$(FAST) go test -c -vet=off -o $(OUT)/test/yarn.test ./test/yarn

yarn: yarn-bed ## a ResourceManager and two NodeManagers of Hadoop on this machine until ^C (root)
	$(BIN)/yarn up

test-yarn: yarn-bed ## level 6: real YARN, with jobs (root, Java 17, Maven, krb5-kdc)
	go test -vet=off -count=1 ./test/bed/yarn
	$(YARN_TEST)
	$(YARN_TEST) -pair -test.run=TestPair
	$(YARN_TEST) -kerberos -test.run=TestKerberos

test-yarn-pools: e2e-test bed yarn-bed ## level 6c: worker pools of real NodeManagers, without a node (root, Java 17, Maven)
	$(E2E) -test.timeout=$(if $(WATERLINE_SOAK),8h,30m) -test.run=TestPool -on=yarn
	$(E2E) -test.run=TestPoolPair -on=yarn -pair

hadoop-image: yarn-bed ## build the container image of Hadoop (seconds)
	test/bed/yarn/image.sh

test-node-yarn: e2e-test bed hadoop-image ## level 6b: NodeManagers in pods of a real node, with jobs (root, Java 17, Maven)
	$(E2E) -test.timeout=40m -test.run=TestYARN

bench: bed yarn-bed ## measure; figures go to out/bench
	test/bench.sh

results: ## write docs/results.md from docs/results.json, updated from out/bench
	go run ./test/results

cluster: bed ## a single-node Kubernetes on this machine with Waterline installed (root)
	test/bed/cluster.sh up

cluster-down: ## remove every trace of it
	test/bed/cluster.sh down

packages:
	@test/bed/packages.sh

clean: ## remove everything that was built
	rm -rf $(OUT)

.PHONY: help build demo demo-vm test soak check format vet lint generate generated test-unit test-pure race \
	kernel-test e2e-test test-kernel vm test-vm test-vm-cpus bed test-api test-api-figures test-node test-node-figures \
	test-node-static test-node-v2 yarn-bed yarn test-yarn test-yarn-pools hadoop-image test-node-yarn bench results cluster cluster-down packages clean
