# Waterline. `make help` lists what there is.

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

.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build waterline, waterline-agent, waterline-manager and the lab into out/bin
	@mkdir -p $(BIN)
	go build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/... ./test/lab

demo: build ## show on this machine's kernel that twice the weight gets twice the CPU (root, about 45 s)
	$(BIN)/waterline demo

demo-vm: build vm ## the same on cgroup v2, in a virtual machine
	$(VMRUN) -file $(BIN)/waterline=/bin/waterline -file $(BIN)/waterline-agent=/bin/waterline-agent -o $(OUT)/demo-vm -- /bin/waterline demo --out /out

test: ## everything, in short forms: all rungs of the test bed (root; an hour on a new machine)
	test/rungs.sh short

soak: ## the same tests in their full forms (hours)
	test/rungs.sh full

check: format vet lint generated test-unit ## format, vet, lint, fences and unit tests: under two minutes

format:
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); if [ -n "$$unformatted" ]; then echo "not formatted: $$unformatted; run gofmt -w"; exit 1; fi

vet:
	go vet ./...

lint: $(GOLANGCI)
	$(GOLANGCI) run ./...

$(GOLANGCI):
	@mkdir -p $(BIN)
	GOBIN=$(CURDIR)/$(BIN) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

generate: $(CONTROLLER_GEN) ## make deep copies and custom resource definitions from api/
	$(CONTROLLER_GEN) object crd paths=./api/... output:crd:dir=deploy/chart/crds

# Generates into another folder, so that a check changes nothing.
generated: $(CONTROLLER_GEN)
	@made=$$(mktemp -d) && trap 'rm -rf "$$made"' EXIT && \
	$(CONTROLLER_GEN) object crd paths=./api/... output:crd:dir=$$made/crds output:object:dir=$$made && \
	diff -r $$made/crds deploy/chart/crds && diff $$made/zz_generated.deepcopy.go api/v1alpha1/zz_generated.deepcopy.go || \
	{ echo "what is generated is not what is here; run make generate"; exit 1; }

$(CONTROLLER_GEN):
	@mkdir -p $(BIN)
	GOBIN=$(CURDIR)/$(BIN) go install sigs.k8s.io/controller-tools/cmd/controller-gen@$(CONTROLLER_GEN_VERSION)

# The lab's own tests need no kernel.
UNIT = $$(go list ./... | grep -vE '/test/(bed|e2e|kernel)')

test-unit: ## rung 1: what needs no kernel
	go test $(UNIT)

race: ## the unit and live kernel tests under the race detector
	CGO_ENABLED=1 go test -race $(UNIT) ./test/kernel

test-kernel: build ## rung 2: this machine's kernel (root)
	WATERLINE_BIN=$(CURDIR)/$(BIN) go test -count=1 -timeout 30m ./test/kernel

VMRUN := $(BIN)/vmrun

vm:
	@mkdir -p $(BIN)
	go build -o $(BIN)/ ./test/bed/vm/cmd/vmrun

test-vm: build vm kernel-test ## rung 3: the same suite and the demo on cgroup v2, in a virtual machine
	go test -count=1 ./test/bed/vm/...
	$(VMRUN) -file $(OUT)/test/kernel.test=/t/kernel.test -file $(BIN)/waterline=/bin/waterline -file $(BIN)/waterline-agent=/bin/waterline-agent \
		-file $(BIN)/lab=/bin/lab -module brd -e CI=$(CI) -e WATERLINE_SOAK=$(WATERLINE_SOAK) -e WATERLINE_BIN=/bin -timeout $(if $(WATERLINE_SOAK),3h,30m) -o $(OUT)/test/vm \
		-run 'kernel: /t/kernel.test -test.skip ^TestCPU' -run 'demo: /bin/waterline demo --out /out'

test-vm-cpus: vm kernel-test ## rung 3: CPU sets in a virtual machine of 2 sockets, 4 NUMA nodes, 8 CPUs
	$(VMRUN) -topology 2x2x1x2 -file $(OUT)/test/kernel.test=/t/kernel.test -e CI=$(CI) -e WATERLINE_SOAK=$(WATERLINE_SOAK) \
		-timeout $(if $(WATERLINE_SOAK),1h,10m) -run 'cpusets: /t/kernel.test -test.run ^TestCPU -test.v -test.timeout 1h'

kernel-test:
	@mkdir -p $(OUT)/test
	go test -c -o $(OUT)/test/kernel.test ./test/kernel

HELM := $(BIN)/helm

$(HELM):
	@mkdir -p $(BIN)
	go build -C k8s -o $(CURDIR)/$(HELM) helm.sh/helm/v4/cmd/helm

bed: $(HELM) ## build the test bed's cluster: Kubernetes, containerd, images
	nice -n 19 test/bed/build.sh # beside rung 3, which knows what time it is

# The comparison with the kubelet's own choice of CPUs stands here because bed has compiled what it needs. Vet would look at
# all of that once more, for a minute.
test-api: build bed ## rung 4: a real API server, and parts of Kubernetes as the reference
	go test -C k8s -vet=off -count=1 -timeout 20m ./reference
	go test -count=1 ./test/bed/cluster -run API
	go test -count=1 -timeout 40m ./test/e2e -run TestAPI -skip '$(FIGURES)' -args -on=api

FIGURES := Figures|Prometheus|Colocate|Headline|Measure

test-api-figures: build bed ## what rung 4 measures, for which the machine should do nothing else
	go test -count=1 -timeout 40m ./test/e2e -run 'TestAPI.*($(FIGURES))' -args -on=api

test-node: build bed ## rung 5a: pods on a real node on this machine (root)
	go test -count=1 ./test/bed/cluster -run Node
	go test -count=1 -timeout 40m ./test/e2e -run TestNode -skip '$(FIGURES)'

test-node-figures: build bed ## what rung 5a measures, for which the machine should do nothing else (root)
	go test -count=1 -timeout 40m ./test/e2e -run 'TestNode.*($(FIGURES))'

test-node-static: build bed ## rung 5a with a kubelet that gives containers CPUs of their own (root)
	go test -count=1 -timeout 10m ./test/e2e -run TestStatic -args -on=static

test-node-v2: build bed vm ## rung 5b: pods on a real node with cgroup v2 and systemd, in a virtual machine (root)
	go test -count=1 -timeout 90m ./test/e2e -run TestNode -args -on=vm

bench: build bed ## measure; figures go to out/bench
	test/bench.sh

cluster: build bed ## a single-node Kubernetes on this machine with Waterline installed (root)
	test/bed/cluster.sh up

cluster-down: ## remove every trace of it
	test/bed/cluster.sh down

packages:
	@test/bed/packages.sh

clean: ## remove what was built
	rm -rf $(OUT)

.PHONY: help build demo demo-vm test soak check format vet lint generate generated test-unit race test-kernel vm test-vm test-vm-cpus kernel-test bed test-api test-api-figures test-node test-node-figures test-node-static test-node-v2 bench cluster cluster-down packages clean
