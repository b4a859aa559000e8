//go:build linux

package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-sched/muster/agent"
	"github.com/muster-sched/muster/agent/hardware"
	"github.com/muster-sched/muster/gpu/gputest"
	"github.com/muster-sched/muster/internal/fakeapi"
)

// A user sees the GPUs of this machine and of an agent, what is wrong with them, and clears what was repaired.
func TestAgentGPUs(t *testing.T) {
	library, root := gputest.NewLibrary(t), t.TempDir()
	library.Set(t, "gpu busy=97 used=60000000000 links=ss", "gpu name=NVIDIA_\x1b[31mred pending=1", "gpu code=15")
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file("proc/sys/kernel/random/boot_id", "one")
	file("proc/uptime", "5.0 1.0")
	kmsg := file("kmsg", "4,1,1000000,-;NVRM: Xid (PCI:0000:11:00): 79, GPU has fallen off the bus.\n4,2,2000000,-;NVRM: Xid (PCI:0000:10:00): 31, MMU Fault\n")
	t.Setenv("MUSTER_GPU_NVML", library.Program)
	t.Setenv("MUSTER_NVML", library.Path)
	t.Setenv("MUSTER_SYSTEM", root)
	for _, e := range library.Environment() {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	muster := func(code int, line string) string {
		t.Helper()
		var out, problem strings.Builder
		if got := run(strings.Fields(line), strings.NewReader(""), &out, &problem); got != code {
			t.Fatalf("muster %s: exit code %d; expected %d\n%s%s", line, got, code, out.String(), problem.String())
		}
		return out.String() + problem.String()
	}
	has := func(text string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("found\n%s\nwithout %q", text, want)
			}
		}
		if strings.ContainsRune(text, '\x1b') {
			t.Error("the name of a GPU changes the colour of the terminal")
		}
	}
	local := muster(0, "agent gpus --kernel-log "+kmsg)
	has(local, "GPU-00000000  NVIDIA H200", "97%  55.9 GiB  140.4 GiB  30 C  682 W     -  -        2/2    0  ok\n", "0  XidError\n", "-    -  GPULost\n",
		": GPU GPU-00000001: XidError since ", ": GPU GPU-00000001: rows of its memory wait for a reset", ": GPU 2: GPULost since ", "0000:10:00.0: Xid 31: a kernel touched memory that is not mapped (restart_once)\n")
	has(muster(0, "agent gpus --kernel-log none"), "errors in the kernel log are not seen: it is not read")
	has(muster(0, "agent gpus --kernel-log "+root+"/none"), "errors in the kernel log are not seen: "+root+"/none: no such file or directory\n")

	certs := filepath.Join(t.TempDir(), "certs")
	muster(0, "agent certificates --out "+certs+" --host 127.0.0.1")
	in := func(name string) string { return filepath.Join(certs, name) }
	w, err := hardware.Open(hardware.Options{
		Program: library.Program, Library: library.Path, KernelLog: kmsg, System: root, StateDir: t.TempDir(), Timeout: time.Minute, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	serve := func(o agent.Options) (at string) {
		t.Helper()
		o.StateDir, o.GPUDir, o.Log = t.TempDir(), root, slog.New(slog.DiscardHandler)
		a, err := agent.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() {
			done <- a.Serve(ctx, l, agent.TLS{Cert: in("agent.crt"), Key: in("agent.key"), CA: in("ca.crt")}, []string{"muster"})
		}()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			a.Close()
		})
		return " --agent " + l.Addr().String() + " --tls-cert " + in("client.crt") + " --tls-key " + in("client.key") + " --tls-ca " + in("ca.crt")
	}
	at, blind := serve(agent.Options{Node: "n1", Hardware: w}), serve(agent.Options{Node: "n2"})
	has(muster(0, "agent gpus"+at), "n1: the agent does not look at GPUs, or has not yet")
	w.Read(t.Context())
	if remote, _, _ := strings.Cut(muster(0, "agent gpus"+at), "n1: "); strings.Count(remote, "\n") != 4 || !strings.Contains(remote, "XidError") {
		t.Errorf("found\n%s", remote)
	}
	both := muster(0, "agent gpus"+at+blind)
	has(both, "n1      0  GPU-00000000", "n2: the agent does not look at GPUs")
	var line struct {
		Node     string
		Hardware struct {
			GPUs []struct {
				UUID   string
				Faults []struct{ Reason string }
			}
			Xids []struct{ Code int }
		}
	}
	if text := muster(0, "agent gpus --json"+at); json.Unmarshal([]byte(text), &line) != nil || line.Node != "n1" || line.Hardware.GPUs[1].Faults[0].Reason != "XidError" || line.Hardware.Xids[0].Code != 79 || strings.Count(text, "\n") != 1 {
		t.Errorf("found %s", text)
	}
	has(muster(1, "agent clear --gpu GPU-x"+at), `no such GPU: "GPU-x"`)
	has(muster(1, "agent clear --all"+blind), "does not look at GPUs")
	has(muster(0, "agent clear --gpu GPU-00000001"+at), "GPU-00000001")
	if after := muster(0, "agent gpus"+at); strings.Contains(after, "XidError") {
		t.Errorf("it was cleared:\n%s", after)
	}
	// Agents that cannot be reached are a line each, and the others are shown.
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	part := muster(1, "agent gpus --agent "+dead.Addr().String()+at)
	has(part, "n1      0  GPU-00000000", "muster: agent "+dead.Addr().String()+": ", "connection refused")
	if strings.Count(part, "muster: ") != 1 || strings.Contains(part, "--id") {
		t.Errorf("found\n%s", part)
	}
	address, flags, _ := strings.Cut(strings.TrimPrefix(at, " --agent "), " ")
	api, err := fakeapi.New(`apiVersion: v1
kind: Node
metadata: {name: n1, annotations: {muster.sh/agent: "`+address+`"}}
---
apiVersion: v1
kind: Node
metadata: {name: down, annotations: {muster.sh/agent: "`+dead.Addr().String()+`"}}
---
apiVersion: v1
kind: Node
metadata: {name: nowhere}
`, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api)
	defer server.Close()
	config := file("kubeconfig", `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "`+server.URL+`"}}], users: [{name: u, user: {}}]}`)
	part = muster(1, "agent gpus down nowhere n1 absent --agent-name 127.0.0.1 --kubeconfig "+config+" "+flags)
	has(part, "n1      0  GPU-00000000", "muster: node down: agent "+dead.Addr().String()+": ", "muster: node nowhere has no internal address", `muster: read node absent: nodes "absent" not found`)
	if strings.Count(part, "muster: ") != 3 {
		t.Errorf("found\n%s", part)
	}
	for _, c := range []struct{ line, want string }{
		{"agent clear" + at, "expected --gpu or --all"},
		{"agent clear --all --gpu x" + at, "expected --gpu or --all"},
		{"agent clear --all", "expected one NODE or --agent; found 0"},
		{"agent clear --all n1" + at, "expected one NODE or --agent; found 2"},
		{"agent gpus n1" + at, "--agent: it does not go with a NODE of the cluster; found n1"},
		{"agent gpus n1 --agent-port 70000 " + flags, "--agent-port: expected a number from 1 to 65535; found 70000"},
		{"agent gpus --agent x:1", "--tls-cert: expected a file"},
		{"agent gpus --kernel-log x" + at, "--kernel-log: it is for this machine"},
		{"agent --gpu-interval 1ms --tls-cert " + in("agent.crt") + " --tls-key " + in("agent.key") + " --tls-ca " + in("ca.crt"), "--gpu-interval: expected at least 1s, or 0 for none; found 1ms"},
		{"agent --gpu-interval 0 --publish --tls-cert " + in("agent.crt") + " --tls-key " + in("agent.key") + " --tls-ca " + in("ca.crt"), "--publish: expected a --gpu-interval with it"},
		{"agent --publish --kubeconfig none --state-dir " + root + "/s --tls-cert " + in("agent.crt") + " --tls-key " + in("agent.key") + " --tls-ca " + in("ca.crt"), "--kubeconfig: expected a valid kubeconfig"},
	} {
		if got := muster(2, c.line); !strings.Contains(got, c.want) || strings.Count(got, "\n") != 1 {
			t.Errorf("muster %s: %s; expected %q", c.line, got, c.want)
		}
	}
}
