package agent

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/checkpoint"
)

// scrape returns what the agent says of itself to Prometheus.
func scrape(t *testing.T, h http.Handler) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// has fails the test for each of the lines that a text lacks.
func has(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			t.Errorf("without %s:\n%s", line, text)
		}
	}
}

// Operations are counted as they end, those of an agent before this one too, and shown while they are at work.
func TestMetrics(t *testing.T) {
	m := newMachine(2, checkpoint.Running)
	a := m.agent(t)
	h := a.Handler()
	for i, r := range []*agentpb.RunRequest{request("a", actPause, 1, 2), request("b", actResume, 1, 2), request("c", actCheckpoint, 1, 2), request("d", actRestore, 1, 2)} {
		for range 2 { // the same call again is the same operation
			if _, err := a.Run(t.Context(), r); err != nil {
				t.Fatal(i, err)
			}
		}
	}
	m.broken = true
	if op, err := a.Run(t.Context(), request("e", actCheckpoint, 1)); err != nil || op.State != agentpb.State_STATE_FAILED {
		t.Fatal(op, err)
	}
	text := scrape(t, h)
	has(t, text,
		`muster_agent_operation_seconds_count{action="pause",state="succeeded"} 1`, `muster_agent_operation_seconds_count{action="resume",state="succeeded"} 1`,
		`muster_agent_operation_seconds_count{action="checkpoint",state="succeeded"} 1`, `muster_agent_operation_seconds_count{action="restore",state="succeeded"} 1`,
		`muster_agent_operation_seconds_count{action="checkpoint",state="failed"} 1`,
		`muster_agent_under_way{action="pause"} 0`, `muster_agent_under_way{action="advance"} 0`, `muster_agent_processes{phase="saved"} 0`,
	)
	if strings.Contains(text, "muster_agent_gpus") {
		t.Error("it counts GPUs at which it does not look")
	}
	a.mu.Lock()
	a.operations["a"].record.Operation.State = agentpb.State_STATE_ACTING
	a.parts["job@pod"] = &part{callers: 1}
	a.mu.Unlock()
	has(t, scrape(t, h), `muster_agent_under_way{action="pause"} 1`, `muster_agent_under_way{action="advance"} 1`)
	if w := httptest.NewRecorder(); true {
		if h.ServeHTTP(w, httptest.NewRequest("GET", "/healthz", nil)); w.Code != http.StatusOK {
			t.Errorf("healthz: %d", w.Code)
		}
	}
}

// A GPU counts once, under the first thing that is wrong with it, or with all of them.
func TestGPUsByHealth(t *testing.T) {
	fault := func(reasons ...string) (list []*agentpb.Fault) {
		for _, r := range reasons {
			list = append(list, &agentpb.Fault{Reason: r})
		}
		return list
	}
	two := []*agentpb.GPU{{}, {Faults: fault("XidError", "GPULost")}}
	for name, c := range map[string]struct {
		h    *agentpb.Hardware
		want map[string]int
	}{
		"none":                    {&agentpb.Hardware{}, map[string]int{"ok": 0, "unknown": 0}},
		"one at fault":            {&agentpb.Hardware{Gpus: two}, map[string]int{"ok": 1, "unknown": 0, "XidError": 1}},
		"all at fault":            {&agentpb.Hardware{Gpus: two, Faults: fault("DriverNotResponding"), Unread: "x"}, map[string]int{"ok": 0, "unknown": 0, "XidError": 1, "DriverNotResponding": 1}},
		"the driver says nothing": {&agentpb.Hardware{Gpus: two, Unread: "no answer"}, map[string]int{"ok": 0, "unknown": 1, "XidError": 1}},
	} {
		if got := gpusBy(c.h); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v; expected %v", name, got, c.want)
		}
	}
}
