package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/gpu/gputest"
)

// A user lists a process, pauses it, uses its memory, and resumes it.
func TestPauseAndResume(t *testing.T) {
	n := gputest.NewNode(t, 64)
	t.Setenv("MUSTER_GPU_DIR", n.Dir)
	muster := func(code int, args ...string) (stdout, stderr string) {
		t.Helper()
		var out, problem strings.Builder
		if got := run(args, strings.NewReader(""), &out, &problem); got != code {
			t.Fatalf("muster %v: exit code %d; expected %d\n%s%s", args, got, code, out.String(), problem.String())
		}
		return out.String(), problem.String()
	}
	if out, _ := muster(0, "pause", "--list"); !strings.Contains(out, "No process in") {
		t.Error(out)
	}
	p, other := n.Start(t), n.Start(t)
	pid := strconv.Itoa(p.PID)
	p.Do("alloc %d", 48<<20)
	sum := p.Do("sum 0 %d", 48<<20)
	if out, _ := muster(0, "pause", "--list"); !strings.Contains(out, pid+"  Running    48 MiB") {
		t.Error(out)
	}
	if out, _ := muster(0, "pause", pid); !strings.Contains(out, pid+"  Saved    48 MiB  48 MiB          0\n") || !strings.Contains(out, "GB/s") {
		t.Error(out)
	}
	if out, _ := muster(0, "pause", pid); !strings.Contains(out, "Saved") { // again: nothing happens
		t.Error(out)
	}
	out, _ := muster(0, "pause", "--list", "--json")
	var st checkpoint.Status
	if err := json.Unmarshal([]byte(strings.SplitAfter(out, "\n")[0]), &st); err != nil || !strings.Contains(out, `"phase":"Saved"`) {
		t.Errorf("%s: %v", out, err)
	}
	other.Do("alloc %d", 32<<20)
	if _, problem := muster(1, "resume", pid); !strings.Contains(problem, "too little free memory: pause or end what uses it") {
		t.Error(problem)
	}
	muster(0, "pause", strconv.Itoa(other.PID))
	if out, _ := muster(0, "resume", pid); !strings.Contains(out, pid+"  Running") {
		t.Error(out)
	}
	if got := p.Do("sum 0 %d", 48<<20); got != sum {
		t.Errorf("%s before, %s after", sum, got)
	}
}

// Of what the processes have, the command takes the most.
func TestPauseChoosesBackend(t *testing.T) {
	n := gputest.NewNode(t, 64)
	t.Setenv("MUSTER_GPU_DIR", n.Dir)
	program, driver, environment := n.Caller()
	t.Setenv("MUSTER_GPU_CALL", program)
	t.Setenv("MUSTER_GPU_DRIVER", driver)
	for _, v := range environment {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	with, without := n.Start(t), n.StartPlain(t)
	for _, c := range []struct {
		command string
		p       []*gputest.Program
		want    string
	}{
		{"pause --backend shim", []*gputest.Program{with}, "Saved"},
		{"resume", []*gputest.Program{with}, "Running"},
		{"pause", []*gputest.Program{with}, "Saved"},
		{"resume", []*gputest.Program{with}, "Running"},
		{"pause --backend replay", []*gputest.Program{with}, "Released"},
		{"resume", []*gputest.Program{with}, "Running"},
		{"pause --backend hybrid", []*gputest.Program{with}, "Checkpointed"},
		{"resume", []*gputest.Program{with}, "Running"},
		{"pause", []*gputest.Program{with, without}, "Checkpointed"},
		{"resume", []*gputest.Program{with, without}, "Running"},
	} {
		args := strings.Fields(c.command)
		for _, p := range c.p {
			args = append(args, strconv.Itoa(p.PID))
		}
		var out, problem strings.Builder
		if code := run(args, strings.NewReader(""), &out, &problem); code != 0 || strings.Count(out.String(), c.want) != len(c.p) {
			t.Errorf("muster %v: exit code %d, %s%s", args, code, out.String(), problem.String())
		}
	}
}

func TestPauseOfWhatCannotBePaused(t *testing.T) {
	t.Setenv("MUSTER_GPU_DIR", t.TempDir())
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"pause", 2, "expected a PID"},
		{"pause 7 x", 2, `expected the ID of a process, such as 4711; found "x"`},
		{"pause x", 2, "--tls-cert: expected a file"},
		{"pause x --agent a:1", 2, "--agent: it does not go with a JOB of the cluster; found x"},
		{"resume x --agent-port 0", 2, "--agent-port: expected a number from 1 to 65535; found 0"},
		{"resume 7 -n team-a", 2, "--namespace: expected one JOB of the cluster with it"},
		{"pause -- -3", 2, `found "-3"`},
		{"pause 7 7", 2, "found 7 twice"},
		{"pause 7 --timeout 0", 2, "--timeout: expected more than 0"},
		{"pause 7 --retries=-1", 2, "--retries: expected 0 or more; found -1"},
		{"pause --list 7", 2, "--list: expected no PID with it"},
		{"pause 7 --backend nvml", 2, "--backend: expected one of auto, shim, driver, hybrid, replay, framework, none"},
		{"pause 1 --backend none", 1, "process 1: nothing pauses it"},
		{"pause 1 --backend framework", 1, "1.self says that it saves itself"},
		{"resume", 2, "expected a PID"},
		{"pause 1", 1, "process 1: the process does not run with Muster's libcuda.so.1"},
		{"resume 999999999", 1, "process 999999999: the process has ended"},
	} {
		var out, problem strings.Builder
		code := run(strings.Fields(c.args), strings.NewReader(""), &out, &problem)
		if code != c.code || !strings.Contains(problem.String(), c.want) || strings.Count(problem.String(), "\n") != 1 {
			t.Errorf("muster %s: exit code %d, %q", c.args, code, problem.String())
		}
	}
}

// A program of muster run has a store of its own: it is paused into that.
func TestCheckpointOfWhatSavesItself(t *testing.T) {
	dir, pid := t.TempDir(), strconv.Itoa(os.Getpid())
	t.Setenv("MUSTER_GPU_DIR", dir)
	if err := os.WriteFile(filepath.Join(dir, pid+".self"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"checkpoint", "restore"} {
		var out, problem strings.Builder
		code := run([]string{command, pid, "--store", t.TempDir()}, strings.NewReader(""), &out, &problem)
		if want := "expected muster pause " + pid + ", and muster resume " + pid; code != 1 || !strings.Contains(problem.String(), want) {
			t.Errorf("muster %s: exit code %d, %q; want %q", command, code, problem.String(), want)
		}
	}
}
