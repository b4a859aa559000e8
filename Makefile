# The targets are few; `make help` lists them. Each does what it says with
# nothing installed but Go (web: npm): what else is needed is fetched at pinned
# versions.

FUZZTIME ?= 30s
FUZZ     ?= .
DEMO     ?= out/demo
OUT      ?= .

.DEFAULT_GOAL := help
.PHONY: help build gpu gpu-fake gpu-check gpu-check-build devcluster kubectl up demo test test-devcluster test-full lint fmt generate sbom web bench fuzz check clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

build: ## build bin/muster, and bin/kubectl-muster, the same as a plugin of kubectl
	go build -o bin/ ./cmd/muster
	ln -sf muster bin/kubectl-muster

# A process whose LD_LIBRARY_PATH begins with bin/gpu can be paused: docs/pause.md.
LIBCUDA = $(CC) -std=gnu11 -O2 -Wall -Wextra -fPIC -shared -fvisibility=hidden -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic -Wl,-z,defs

gpu: ## build bin/gpu/: libcuda.so.1, which makes GPU work pausable, and the programs that call the driver (needs a C compiler)
	mkdir -p bin/gpu
	$(LIBCUDA) -o bin/gpu/libcuda.so.1 gpu/shim/shim.c gpu/shim/memory.c gpu/shim/data.c gpu/shim/hand.c gpu/shim/objects.c gpu/shim/ptx.c gpu/shim/replay.c -ldl -lpthread
	$(CC) -std=gnu11 -O2 -Wall -Wextra -o bin/gpu/muster-gpu-call gpu/call/call.c gpu/call/ghost.c gpu/shim/data.c gpu/shim/hand.c -ldl -lpthread
	$(CC) -std=gnu11 -O2 -Wall -Wextra -o bin/gpu/muster-gpu-worker gpu/worker/worker.c -ldl -lpthread
	$(CC) -std=gnu11 -O2 -Wall -Wextra -o bin/gpu/muster-gpu-nvml gpu/nvml/nvml.c -ldl

gpu-fake: ## build bin/gpu-fake/, a driver whose GPU is the CPU, to try muster pause and muster disagg run without a GPU
	mkdir -p bin/gpu-fake
	$(LIBCUDA) -o bin/gpu-fake/libcuda.so.1 gpu/fake/fake.c -ldl -lpthread
	$(CC) -std=gnu11 -O2 -Wall -Wextra -fPIC -shared -fvisibility=hidden -Wl,-soname,libcublas.so.12 -o bin/gpu-fake/libcublas.so.12 gpu/fake/cublas.c -ldl -lpthread -lm
	$(CC) -std=gnu11 -O2 -Wall -Wextra -fPIC -shared -fvisibility=hidden -Wl,-soname,libnvidia-ml.so.1 -o bin/gpu-fake/libnvidia-ml.so.1 gpu/fake/nvml.c
	$(CC) -std=gnu11 -O2 -Wall -Wextra -o bin/gpu-fake/trainer gpu/fake/trainer.c -ldl -lpthread
	go build -o bin/gpu-fake/interpreter ./gpu/fake/interpreter

# Where there is no Go, bin/gpu-check is what was built elsewhere.
gpu-check: ## on a machine with a GPU, measure what pausing costs and how kernels run by a plan, and write docs/gpu-results/
	if command -v go >/dev/null; then go test -c -o bin/gpu-check ./gpu/check; fi
	cd gpu/check && MUSTER_GPU_CHECK=$(CURDIR)/docs/gpu-results ../../bin/gpu-check -test.timeout 30m -test.v -test.run '^TestCheck'

gpu-check-build: ## build bin/gpu-check, with which a copy of this folder on a machine without Go runs make gpu-check (it needs a C compiler)
	CGO_ENABLED=0 go test -c -o bin/gpu-check ./gpu/check

# What Kubernetes says its version is: that of devcluster/go.mod.
KUBERNETES = $(shell sed -nE 's/^\tk8s.io\/kubernetes (v[0-9.]+).*/\1/p' devcluster/go.mod)
KUBEFLAGS  = -s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES)

devcluster: ## build bin/muster-devcluster, a Kubernetes control plane with simulated nodes (minutes the first time)
	cd devcluster && go build -ldflags "$(KUBEFLAGS)" -o ../bin/muster-devcluster .

kubectl: ## build bin/kubectl, for those who have none
	cd devcluster && go build -ldflags "$(KUBEFLAGS)" -o ../bin/kubectl k8s.io/kubernetes/cmd/kubectl

up: build devcluster ## build all, start a Kubernetes API with simulated GPU nodes, and schedule a workload on it
	bin/muster up --models H800:32,A10:32 --workload kant-training

demo: build ## run the built-in kant-training workload under three policies, and print the result
	bin/muster sim --workload kant-training --seed 1 --policy StrictFIFO,BestEffortFIFO,default --window-to 7d --out $(DEMO)

test: ## run the tests, in minutes
	go test -short ./...

test-devcluster: ## run the tests of the control plane with simulated nodes
	cd devcluster && go test $$(go list ./... | grep -v /e2e)

test-full: ## run all tests, the long ones too, then fuzz each target for FUZZTIME
	MUSTER_FULL=1 go test -timeout 60m ./...
	$(MAKE) test-e2e-full
	$(MAKE) fuzz

test-e2e: build devcluster ## run the tests on a real Kubernetes API, in minutes
	cd devcluster && go test -count=1 -timeout 60m ./e2e
	PATH="$(CURDIR)/bin:$$PATH" MUSTER_E2E=1 go test -count=1 -timeout 30m -run TestScenariosOnAPI ./kube

test-e2e-full: build devcluster ## run the long ones of these too: fifty rounds of each fault, ten minutes of TestCrash; then all once under the race detector
	cd devcluster && MUSTER_FULL=1 go test -count=1 -timeout 90m ./e2e
	cd devcluster && go test -race -count=1 -timeout 90m ./e2e

lint: ## vet and lint, and check the documents' links and words
	go vet ./...
	go tool -modfile=tools/go.mod staticcheck ./...
	cd devcluster && go vet ./... && go tool -modfile=../tools/go.mod staticcheck ./...
	.ci/docs
	go test -run TestPlainWords ./internal/rules

fmt: ## format the code
	gofmt -w $$(git ls-files '*.go')

generate: ## write what is made from api/v1alpha1, agent.proto and the chart again
	mkdir -p $(OUT)/deploy/crds $(OUT)/deploy/helm/muster/crds $(OUT)/deploy/helm/muster/files $(OUT)/deploy/kustomize/base
	go tool -modfile=tools/go.mod controller-gen paths=./api/... object output:object:dir=$(OUT)/api/v1alpha1 \
		crd:allowDangerousTypes=true output:crd:dir=$(OUT)/deploy/crds
	cp $(OUT)/deploy/crds/muster.sh_*.yaml $(OUT)/deploy/helm/muster/crds/
	cp deploy/grafana/muster.json $(OUT)/deploy/helm/muster/files/
	cp deploy/prometheus/muster.yaml $(OUT)/deploy/helm/muster/files/alerts.yaml
	mkdir -p $(OUT)/agent/agentpb
	go run -C tools ./protogen $(CURDIR)/agent/agentpb agent.proto $(abspath $(OUT))/agent/agentpb
	go run -C tools ./chart >$(OUT)/deploy/kustomize/base/muster.yaml

sbom: build ## write $(OUT)/muster.cdx.json, what the binary is made of (CycloneDX)
	go build -modfile=tools/go.mod -o bin/ github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod
	bin/cyclonedx-gomod bin -json -noserial -version "$$(bin/muster version | sed 's/^muster //; s/ .*//')" -output $(OUT)/muster.cdx.json bin/muster

web: ## build the script of the report again, after a change in report/web
	npm --prefix report/web ci
	npm --prefix report/web run build

bench: ## run the benchmarks
	go test -run '^$$' -bench . -benchmem ./...

fuzz: ## fuzz each target, or those that FUZZ matches, for FUZZTIME (30s)
	@set -e; for file in $$(git grep -lE '^func Fuzz' -- '*_test.go'); do \
		for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*).*/\1/p' $$file | grep -E '$(FUZZ)'); do \
			echo "$$target in ./$$(dirname $$file)"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 2s ./$$(dirname $$file); \
		done; \
	done

check: ## everything that must hold before a change is taken
	.ci/run

clean: ## remove what was built and the demo's files
	rm -rf bin out
