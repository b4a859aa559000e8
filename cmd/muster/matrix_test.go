package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// matrixPolicies are the queueing policies and the placement strategies.
const matrixPolicies = "StrictFIFO,BestEffortFIFO,Backfill,default,Binpack,EBinpack,Spread,ESpread"

// A cell is a workload on a cluster, with the flags that say so, all policies
// replay it, and every run must pass the audit.
type cell struct{ name, flags string }

// replayAndAudit runs the cell under every policy.
func (c cell) replayAndAudit(t *testing.T) {
	dir := t.TempDir()
	args := append(strings.Fields("sim --seed 1 --policy "+matrixPolicies+" --out "+dir), strings.Fields(c.flags)...)
	must(t, args...)
	for name := range strings.SplitSeq(matrixPolicies, ",") {
		must(t, "audit", filepath.Join(dir, name))
	}
}

// must runs a command that ends with exit code 0 and returns what it printed.
func must(t *testing.T, args ...string) []byte {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(args, strings.NewReader(""), &out, &errs); code != exitDone {
		t.Fatalf("muster %s: exit code %d\n%s%s", strings.Join(args, " "), code, &errs, &out)
	}
	return out.Bytes()
}

// Every policy keeps the invariants, on small workloads of every kind.
func TestMatrix(t *testing.T) {
	mixed := mixedWorkload(t, 300)
	for _, c := range []cell{
		{"training", "--workload kant-training --gpus 256 --length 6h"},
		{"training fails", "--workload kant-training --gpus 256 --length 6h --node-mtbf 3d --evict-grace 300"},
		{"training jobs fail", "--workload kant-training --gpus 256 --length 6h --failures acme --failure-rate 3000 --checkpoint 10m --node-mtbf 3d --evict-grace 300"},
		{"inference", "--workload kant-inference --length 12h"},
		{"inference fails", "--workload kant-inference-a10 --length 12h --node-mtbf 3d --evict-grace 60"},
		{"mixed", "--cluster 6x8:H800,4x4:A10,4x1:A10 --workload " + mixed},
		{"mixed fails", "--cluster 6x8:H800,4x4:A10,4x1:A10 --node-mtbf 12h --start-delay 30 --evict-grace 1h --evict-shutdown 10m,40m --checkpoint 10m --workload " + mixed},
		{"mixed, cut off", "--cluster 6x8:H800,4x4:A10,4x1:A10 --until 8h --gpu-speed A10=0.5 --comm-share 0.3 --workload " + mixed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.replayAndAudit(t)
		})
	}
}

// mixedWorkload writes a crowded workload of everything: gangs and single pods,
// parts of GPUs and none, spot and locked jobs, topology and affinity.
func mixedWorkload(t *testing.T, jobs int) string {
	rng := rand.New(rand.NewPCG(7, 7))
	one := func(of ...string) string { return of[rng.IntN(len(of))] }
	var b strings.Builder
	b.WriteString("job,task,queue,kind,class,priority,gang,pods,gpu_milli,cpu_milli,mem_mib,gpu_models,submit_s,duration_s,outcome,checkpoint_s,locked,topology,affinity\n")
	at := 0.0
	for i := range jobs {
		at += rng.ExpFloat64() * 45
		pods, gpu := 1, one("0", "250", "500", "700", "1000", "2000", "4000")
		gang, topology := rng.IntN(3) == 0, ""
		if gang {
			pods, gpu, topology = 2+rng.IntN(14), one("1000", "2000", "4000"), one("", "", "required=leaf", "preferred=leaf")
		}
		fmt.Fprintf(&b, "j%d,worker,q%d,%s,%s,%s,%v,%d,%s,2000,4096,%s,%.3f,%d,%s,%s,%v,%s,\n",
			i, rng.IntN(4), one("training", "inference", "batch", "dev"), one("HP", "HP", "LP"), one("0", "50", "100"), gang, pods, gpu,
			one("", "H800", "A10", "H800|A10"), at, 60+rng.IntN(20000), one("completed", "completed", "failed", "cancelled"),
			one("0", "600"), rng.IntN(50) == 0, topology)
	}
	path := filepath.Join(t.TempDir(), "mixed.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// The same inputs and seed give the same decisions: again, on one core and on
// two, alone and beside other policies.
func TestSameDecisions(t *testing.T) {
	for _, flags := range []string{
		"--workload kant-training --gpus 256 --length 6h --node-mtbf 10d --evict-grace 60",
		"--workload kant-inference-a10 --length 6h",
		"--cluster 6x8:H800,4x4:A10 --workload " + mixedWorkload(t, 200),
	} {
		want := hashes(t, flags, matrixPolicies)
		for _, cores := range []int{1, 2} {
			was := runtime.GOMAXPROCS(cores)
			again := hashes(t, flags, matrixPolicies)
			for policy, sum := range want {
				if again[policy] != sum {
					t.Errorf("%s, %s: %s, with %d cores %s", flags, policy, sum, cores, again[policy])
				}
			}
			for _, policy := range []string{"default", "Spread"} {
				if alone := hashes(t, flags, policy)[policy]; alone != want[policy] {
					t.Errorf("%s, %s: %s, alone with %d cores %s", flags, policy, want[policy], cores, alone)
				}
			}
			runtime.GOMAXPROCS(was)
		}
	}
}

// hashes returns the SHA-256 of the decisions of each policy.
func hashes(t *testing.T, flags, policies string) map[string]string {
	t.Helper()
	type summary struct {
		Policy string
		Hash   string `json:"decision_sha256"`
	}
	out := must(t, append(strings.Fields("sim --json --seed 3 --policy "+policies), strings.Fields(flags)...)...)
	all := struct{ Runs []summary }{}
	if !strings.Contains(policies, ",") {
		all.Runs = make([]summary, 1)
		if err := json.Unmarshal(out, &all.Runs[0]); err != nil {
			t.Fatal(err)
		}
	} else if err := json.Unmarshal(out, &all); err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{}
	for _, s := range all.Runs {
		if s.Hash == "" {
			t.Fatalf("%s has no hash", s.Policy)
		}
		sums[s.Policy] = s.Hash
	}
	return sums
}

// Every policy keeps the invariants on every public trace. It takes minutes, and
// the traces: run it with MUSTER_FULL=1, and MUSTER_TRACES where they are not
// beside the repository.
func TestMatrixOfTraces(t *testing.T) {
	if os.Getenv("MUSTER_FULL") == "" {
		t.Skip("set MUSTER_FULL=1 to replay the public traces")
	}
	traces := os.Getenv("MUSTER_TRACES")
	if traces == "" {
		traces = filepath.Join("..", "..", "..", "shared", "traces")
	}
	if _, err := os.Stat(traces); err != nil {
		t.Skipf("the public traces are missing: %v; see docs/traces.md, and set MUSTER_TRACES", err)
	}
	for _, c := range traceCells(mixedWorkload(t, 2000)) {
		t.Run(c.name, func(t *testing.T) {
			c.flags = strings.ReplaceAll(c.flags, "$T", traces)
			c.replayAndAudit(t)
		})
	}
}

// traceCells lists the traces; $T is their folder.
func traceCells(mixed string) []cell {
	var cells []cell
	for _, nodes := range []string{"gpu_node", "all_node"} {
		for _, pods := range []string{"default", "gpuspec10", "multigpu20", "gpushare40", "cpu300"} {
			cells = append(cells, cell{
				"openb " + pods + " on " + nodes,
				"--cluster $T/openb-v2023/openb_node_list_" + nodes + ".csv.gz --workload $T/openb-v2023/openb_pod_list_" + pods + ".csv.gz",
			})
		}
	}
	for _, jobs := range []string{"SLO", "MIX1", "MIX2"} {
		cells = append(cells, cell{"chronus " + jobs, "--cluster 40x8 --workload $T/chronus-philly/trace_job_Philly_" + jobs + ".csv.gz"})
	}
	const (
		fails     = " --node-mtbf 20d --checkpoint 1h --evict-grace 300"
		philly    = " --workload $T/philly/jobs.csv.gz"
		overload  = "--cluster 108x8 --from-date 2017-10-01 --to-date 2017-10-08 --rebase" + philly
		openb     = "--cluster $T/openb-v2023/openb_node_list_gpu_node.csv.gz --workload $T/openb-v2023/openb_pod_list_default.csv.gz"
		lingjun   = "--cluster $T/lingjun-2023/topo.csv.gz --workload $T/lingjun-2023/jobs.csv.gz"
		spotNodes = "--cluster $T/spot-gpu-v2026/node_info_df.csv.gz"
	)
	return append(cells,
		cell{"openb fails", openb + fails},
		cell{"lingjun", lingjun},
		cell{"lingjun fails", lingjun + fails},
		cell{"acme", "--cluster 300x8 --workload $T/acme/kalos_completed_319.csv"},
		cell{"philly", "--cluster 352x8" + philly},
		cell{"philly on its nodes", "--cluster $T/philly/vc_nodes.csv" + philly},
		cell{"philly with quotas", "--quotas --cluster $T/philly/vc_nodes.csv" + philly},
		cell{"philly with quotas fails", "--quotas --cluster $T/philly/vc_nodes.csv" + philly + fails},
		cell{"overloaded week", overload},
		cell{"overloaded week fails", overload + fails},
		cell{"spot nodes", spotNodes + " --misfits --workload " + mixed},
		cell{"kant-training", "--workload kant-training"},
		cell{"kant-training fails", "--workload kant-training" + fails},
		cell{"kant-inference", "--workload kant-inference"},
		cell{"kant-inference-i7", "--workload kant-inference-i7"},
		cell{"kant-inference-i7 fails", "--workload kant-inference-i7" + fails},
		cell{"kant-inference-a10", "--workload kant-inference-a10"},
	)
}
