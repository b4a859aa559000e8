package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-sched/muster/gpu/gputest"
)

const (
	runModule = "../../disagg/ptx/testdata/shapes.ptx"
	runTrace  = "../../disagg/worker/testdata/layer.json"
	blasTrace = "../../disagg/worker/testdata/cublas.json"
)

// plannedLayer analyzes a trace and plans it, and returns the file of the plan.
func plannedLayer(t *testing.T, muster func(code int, args ...string) (string, string), trace string) string {
	t.Helper()
	profile, plan := filepath.Join(t.TempDir(), "profile.json"), filepath.Join(t.TempDir(), "plan.json")
	muster(0, "disagg", "analyze", runModule, "--trace", trace, "--profile", profile, "--gpus", "A100,L40S")
	out, _ := muster(0, "disagg", "plan", "--kernels", profile, "--link", "200gbps/1us", "--json")
	if err := os.WriteFile(plan, []byte(out), 0o644); err != nil {
		t.Fatal(err)
	}
	return plan
}

// muster runs the command, and expects an exit code.
func muster(t *testing.T) func(code int, args ...string) (string, string) {
	return func(code int, args ...string) (string, string) {
		t.Helper()
		var out, problem strings.Builder
		if got := run(args, strings.NewReader(""), &out, &problem); got != code {
			t.Fatalf("muster %v: exit code %d; expected %d\n%s%s", args, got, code, out.String(), problem.String())
		}
		return out.String(), problem.String()
	}
}

// onFakeGPUs lets muster disagg run find a driver with two GPUs that are the CPU.
func onFakeGPUs(t *testing.T) {
	t.Helper()
	program, driver, environment := gputest.NewNode(t, 256).Worker(t, 2)
	t.Setenv("MUSTER_GPU_WORKER", program)
	t.Setenv("MUSTER_GPU_DRIVER", driver)
	for _, v := range environment {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
}

// From the text of kernels to requests on two GPUs: a user analyzes, plans and runs.
func TestDisaggRun(t *testing.T) {
	onFakeGPUs(t)
	muster := muster(t)
	plan := plannedLayer(t, muster, runTrace)
	text := []string{"disagg", "run", runModule, "--trace", runTrace, "--plan", plan}
	out, _ := muster(0, append(text, "--requests", "5", "--check")...)
	for _, want := range []string{
		"5 requests on A100: device 0, L40S: device 1.\n",
		"; 30 transfers between GPUs, 0.123 MB.\n",
		"Memory is equal to that on the first GPU alone for 5 of 5 requests.\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%s\nwant %q", out, want)
		}
	}
	// Two parts of one GPU are a pair, on a link that is slower than theirs.
	out, _ = muster(0, append(text, "--requests", "3", "--check", "--split", "10", "--slow-link", "100gbps/1us", "--no-priorities")...)
	if !strings.Contains(out, "for 3 of 3 requests") || !strings.Contains(out, "18 transfers") {
		t.Error(out)
	}
	// What a GPU does between transfers is a graph.
	log := filepath.Join(t.TempDir(), "log")
	t.Setenv("MUSTER_FAKE_GPU_LOG", log)
	out, _ = muster(0, append(text, "--requests", "3", "--check", "--graphs")...)
	if did, err := os.ReadFile(log); err != nil || !bytes.Contains(did, []byte("graph 0 ")) || !bytes.Contains(did, []byte("graph 1 ")) {
		t.Errorf("no GPU launched a graph: %v\n%s", err, did)
	}
	if !strings.Contains(out, "for 3 of 3 requests") || !strings.Contains(out, "The driver's calls take ") || strings.Contains(out, " 0.0 us") {
		t.Error(out)
	}
	// Where requests wait, the monitor leaves the plan for latency.
	latency, apart := filepath.Join(t.TempDir(), "latency.json"), filepath.Join(t.TempDir(), "apart.json")
	fast, err := os.ReadFile(plan)
	if err != nil {
		t.Fatal(err)
	}
	for file, gpus := range map[string][2]string{latency: {"L40S", "A100"}, apart: {"A100", "L40S"}} {
		if err := os.WriteFile(file, bytes.ReplaceAll(fast, []byte(`"gpu": "`+gpus[0]+`"`), []byte(`"gpu": "`+gpus[1]+`"`)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, _ = muster(0, append(text, "--requests", "6", "--check", "--latency-plan", latency, "--latency-plan", apart, "--window", "1ms", "--arrivals", "poisson:1000")...)
	if !strings.Contains(out, "for 6 of 6 requests") || strings.Contains(out, "switched 0 times") {
		t.Error(out)
	}
	// Files for the inputs give the outputs that the same inputs give elsewhere.
	data, outputs := t.TempDir(), t.TempDir()
	for _, name := range []string{"x", "w1", "w2", "y", "cache"} {
		if err := os.WriteFile(filepath.Join(data, name), make([]byte, map[string]int{"y": 12288, "cache": 12288}[name]+map[string]int{"x": 4096, "w1": 4096, "w2": 4096}[name]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, _ = muster(0, append(text, "--requests", "2", "--data", data, "--outputs", outputs, "--on", "L40S=0", "--json")...)
	var ran struct {
		GPUs     []string
		Requests []struct{ Transfers int }
	}
	if err := json.Unmarshal([]byte(out), &ran); err != nil || len(ran.Requests) != 2 || ran.Requests[1].Transfers != 6 || ran.GPUs[1] != "L40S: device 0" {
		t.Errorf("%s: %v", out, err)
	}
	// Without weights a layer gives nothing.
	if got, err := os.ReadFile(filepath.Join(outputs, "result.1.2")); err != nil || strings.Trim(string(got), "\x00") != "" || len(got) != 4096 {
		t.Errorf("output of %d bytes: %v", len(got), err)
	}
	// A node named as a path has files in the folder.
	named := filepath.Join(t.TempDir(), "named.json")
	for from, to := range map[string]string{runTrace: named, plan: named + ".plan"} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, bytes.ReplaceAll(text, []byte(`"result"`), []byte(`"../layer 0/result"`)), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	muster(0, append(text, "--trace", named, "--plan", named+".plan", "--outputs", outputs)...)
	if _, err := os.Stat(filepath.Join(outputs, "..%2Flayer%200%2Fresult.0.2")); err != nil {
		t.Error(err)
	}
	// A trace that leaves out what a kernel reads moves too little, and the comparison says so.
	trace, err := os.ReadFile(runTrace)
	if err != nil {
		t.Fatal(err)
	}
	wrong, args := filepath.Join(t.TempDir(), "wrong.json"), []byte(`"args": ["y", "cache", "0.5", "1024"]`)
	lie := append(bytes.Clone(args), `, "accesses": [{"at": "y", "bytes": 4096, "read": true, "write": true}]`...)
	if err := os.WriteFile(wrong, bytes.Replace(trace, args, lie, 1), 0o644); err != nil || !bytes.Contains(trace, args) {
		t.Fatal(err)
	}
	for _, format := range []string{"--json=false", "--json"} {
		_, problem := muster(1, append(text, "--trace", wrong, "--check", "--requests", "2", format)...)
		if problem != "muster: 2 requests wrote other bytes than on one GPU\n" {
			t.Errorf("%s: %q", format, problem)
		}
	}
	// A plan of other nodes, one that has a node twice, and an input that is too short.
	other, twice := filepath.Join(t.TempDir(), "other.json"), filepath.Join(t.TempDir(), "twice.json")
	for file, text := range map[string][]byte{
		other: bytes.Replace(fast, []byte(`"feed"`), []byte(`"first"`), 1), twice: bytes.Replace(fast, []byte(`"up"`), []byte(`"feed"`), 1), filepath.Join(data, "feed.1.2"): []byte("abc"),
	} {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--requests 0", 2, "--requests: expected a number from 1 to 10000000; found 0"},
		{"--in-flight 0", 2, "--in-flight: expected a number from 1 to 1024; found 0"},
		{"--split 99", 1, "GPU 0: the driver's cuDevSmResourceSplitByCount returned CUDA_ERROR_UNKNOWN"},
		{"--split 10 --on L40S=127.0.0.1:1/0", 2, "--split: expected a plan of two GPUs on one machine, and a number above 0; found 2 GPUs and 10"},
		{"--slow-link A:B=25gbps", 2, `--slow-link: expected a link such as 25gbps or 25gbps/10us; found "A:B=25gbps"`},
		{"--arrivals poisson:x", 2, `--arrivals: expected a rate above 0 such as poisson:1.5; found "poisson:x"`},
		{"--arrivals none.csv", 2, "none.csv: expected a file that can be read"},
		{"--beta 0.5", 2, "beta: expected at least 1; found 0.5"},
		{"--timeout 0", 2, "--timeout: expected more than 0; found 0s"},
		{"--on H100=0", 2, `--on: expected a GPU of the plan and its device, such as A100=0 or A100=10.0.0.2:7441/0; found "H100=0"`},
		{"--on A100=node/0", 2, `found "A100=node/0"`},
		{"--on L40S=127.0.0.1:1/0 --listen 0.0.0.0:0", 2, `--listen: expected HOST:PORT, of this machine's loopback unless there is --tls-cert; found "0.0.0.0:0"`},
		{"--on L40S=127.0.0.1:1/0", 1, "connection refused"},
		{"--on L40S=10.0.0.2:1/0", 2, `--listen: expected an address at which 10.0.0.2:1 reaches this machine; found "127.0.0.1:0"`},
		{"--data none", 2, "--data: expected a folder that can be read"},
		{"--data " + data + " --requests 2", 2, filepath.Join(data, "feed.1.2") + ": expected 4096 bytes; found 3"},
		{"--plan " + other, 2, `other.json: kernels[0].name: expected each node of the trace once; found "first"`},
		{"--plan " + twice, 2, `twice.json: kernels[1].name: expected each node of the trace once; found "feed"`},
		{"--tls-cert none.crt", 2, `--tls-cert, --tls-key, --tls-ca: expected a file of each; found "none.crt", "" and ""`},
		{"--on A100=7", 1, "GPU 7: the driver's cuDeviceGet returned CUDA_ERROR_UNKNOWN"},
		{"--driver none.so", 1, "the driver's dlopen failed: none.so"},
		{"--plan " + runTrace, 2, "layer.json"},
		{"--trace none.json", 2, "none.json: expected a file that can be read"},
	} {
		_, problem := muster(c.code, append(text, strings.Fields(c.args)...)...)
		if !strings.Contains(problem, c.want) || strings.Count(problem, "\n") != 1 {
			t.Errorf("%s: %q, want %q", c.args, problem, c.want)
		}
	}
}

// Calls of cuBLAS run as kernels do. Without the library the user is told what to do, also about another machine.
func TestDisaggRunCuBLAS(t *testing.T) {
	onFakeGPUs(t)
	muster := muster(t)
	plan := plannedLayer(t, muster, blasTrace)
	text := []string{"disagg", "run", runModule, "--trace", blasTrace, "--plan", plan}
	for _, more := range []string{"--graphs", "--graphs=false", "--split=10"} {
		out, _ := muster(0, append(text, "--requests", "3", "--check", more)...)
		if !strings.Contains(out, "; 18 transfers between GPUs") || !strings.Contains(out, "for 3 of 3 requests") {
			t.Errorf("%s: %s", more, out)
		}
	}
	t.Setenv("MUSTER_CUBLAS", "none.so")
	_, problem := muster(2, text...)
	if want := "muster: the trace calls cuBLAS: expected libcublas.so of CUDA 11, 12 or 13 where its GPU is; found: cuBLAS cannot be opened: none.so: cannot open shared object file: No such file or directory; install it there, or let MUSTER_CUBLAS name it\n"; problem != want {
		t.Errorf("%q\nwant %q", problem, want)
	}
}

// A second process has one of the GPUs. When it is killed, the run ends.
func TestDisaggWorker(t *testing.T) {
	onFakeGPUs(t)
	muster := muster(t)
	plan := plannedLayer(t, muster, runTrace)
	muster(2, "disagg", "worker", "--listen", "0.0.0.0:0")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	other := exec.Command(self, "disagg", "worker", "--listen", "127.0.0.1:0")
	other.Args[0] = "muster" // TestMain runs the command under this name
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Process.Kill(); other.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "worker listens on ")
	if err != nil || !ok {
		t.Fatalf("the worker said %q: %v", line, err)
	}
	text := []string{"disagg", "run", runModule, "--trace", runTrace, "--plan", plan, "--on", "L40S=" + address + "/1"}
	got, _ := muster(0, append(text, "--requests", "3", "--check")...)
	if !strings.Contains(got, "L40S: device 1 of "+address) || !strings.Contains(got, "for 3 of 3 requests") || !strings.Contains(got, "18 transfers") {
		t.Error(got)
	}
	outputs := t.TempDir()
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		for t.Context().Err() == nil { // until the first request has an output
			if _, err := os.Stat(filepath.Join(outputs, "result.0.0")); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		other.Process.Kill()
	}()
	_, problem := muster(1, append(text, "--requests", "100000", "--outputs", outputs)...)
	if !strings.HasPrefix(problem, "muster: request ") || strings.Count(problem, "\n") != 1 {
		t.Errorf("%q", problem)
	}
	<-killed
}
