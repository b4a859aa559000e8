//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-sched/muster/agent"
	"github.com/muster-sched/muster/gpu/gputest"
)

// An agent with --metrics-address says to Prometheus what its GPUs are like.
func TestAgentMetrics(t *testing.T) {
	library, dir := gputest.NewLibrary(t), t.TempDir()
	library.Set(t, "gpu", "gpu code=15")
	t.Setenv("MUSTER_GPU_NVML", library.Program)
	t.Setenv("MUSTER_NVML", library.Path)
	for _, e := range library.Environment() {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	certs := filepath.Join(dir, "certs")
	if err := agent.WriteCertificates(certs, []string{"localhost"}, "muster"); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := free.Addr().String()
	free.Close()
	ctx, stop := context.WithCancel(t.Context())
	root := newRoot(false)
	root.SetArgs(strings.Fields(fmt.Sprintf("agent --metrics-address %s --listen 127.0.0.1:0 --state-dir %[2]s/state --gpu-dir %[2]s/gpu --kernel-log none --tls-cert %[3]s/agent.crt --tls-key %[3]s/agent.key --tls-ca %[3]s/ca.crt", at, dir, certs)))
	said, says := io.Pipe()
	root.SetOut(says)
	root.SetErr(io.Discard)
	ended := make(chan error)
	go func() {
		ended <- root.ExecuteContext(ctx)
		says.Close()
	}()
	line := make([]byte, 100)
	if _, err := said.Read(line); err != nil || !strings.Contains(string(line), "listens on") {
		t.Fatalf("%q, %v", line, err)
	}
	for text := ""; !strings.Contains(text, "\nmuster_agent_gpus{health=\"GPULost\"} 1\n"); { // as soon as the GPUs were read
		response, err := http.Get("http://" + at + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if response.Body.Close(); err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response.Status, err)
		}
		if text = string(body); !strings.Contains(text, "\nmuster_agent_under_way{action=\"pause\"} 0\n") {
			t.Fatal(text)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
