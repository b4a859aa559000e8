package mirror

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/kube/objects"
)

// spotGPU is the built-in policy of that name.
func spotGPU(p *core.Policy) {
	doc, _ := policy.ByName("SpotGPU")
	*p = doc.Policy
}

// evicts has an HP pod evict an LP pod from a node of eight GPUs, and takes both away.
func (w *world) evicts(node string) {
	w.t.Helper()
	w.pod("lp", noted(v1alpha1.ClassAnnotation, "LP"), at(node), asking(v1alpha1.GPUResource, "8"))
	w.on("lp>" + node)
	lp := w.pods["default/lp"]
	w.pod("hp", at(node), asking(v1alpha1.GPUResource, "8"))
	w.on("hp>" + node)
	if w.pods["default/lp"] == lp {
		w.t.Fatal("the LP pod is not evicted")
	}
	w.gone("hp")
	w.settle()
}

// counts returns what is to be written on nodes, as node=count.
func (w *world) counts() string {
	text := ""
	for _, x := range w.m.Memory().Evictions {
		text += fmt.Sprintf("%s=%d ", x.Node, x.Count)
	}
	return text
}

// Counts of evictions outlive the engine. They are written on nodes, but not for each eviction.
func TestEvictionsOutliveTheEngine(t *testing.T) {
	w := newWorld(t, spotGPU)
	w.node("a", "r")
	w.node("b", "r")
	w.evicts("b")
	if got := w.counts(); got != "b=1 " {
		t.Errorf("to be written first: %q", got)
	}
	w.evicts("b")
	w.evicts("a")
	if got := w.counts(); got != "" {
		t.Errorf("to be written at once: %q", got)
	}
	w.now = w.now.Add(time.Minute)
	w.settle()
	if got := w.counts(); got != "a=1 b=2 " {
		t.Errorf("to be written later: %q", got)
	}
	w.node("b", "", func(n *v1.Node) { n.Annotations = map[string]string{v1alpha1.EvictionsAnnotation: "2"} })
	w.now = w.now.Add(time.Minute)
	w.settle()
	if got := w.counts(); got != "a=1 " {
		t.Errorf("to be written of b, which has it: %q", got)
	}
	// Another policy, and the old one again.
	for range 2 {
		if err := w.m.rebuild(); err != nil {
			t.Fatal(err)
		}
		w.settle()
	}
	w.evicts("b")
	if a, b := w.m.engine.Evictions("a"), w.m.engine.Evictions("b"); a != 1 || b != 3 {
		t.Errorf("the next engine has %d and %d, expected 1 and 3", a, b)
	}
	// Of nodes on which another instance decides it writes none.
	w.now = w.now.Add(time.Minute)
	w.settle()
	w.m.Shards.Held[0] = false
	if got := w.counts(); got != "" {
		t.Errorf("to be written for another instance: %q", got)
	}
}

// Under a policy that does not place pods by the counts, nothing is written.
func TestEvictionsUnderAnotherPolicy(t *testing.T) {
	w := newWorld(t, func(p *core.Policy) { p.Preempt.MinRuntime = 0 })
	w.node("b", "r")
	w.evicts("b")
	if got := w.counts(); got != "" || w.m.engine.Evictions("b") != 1 {
		t.Errorf("to be written: %q; the count is %d", got, w.m.engine.Evictions("b"))
	}
}

// warnings counts the warnings in a log.
type warnings struct {
	slog.Handler
	count int
}

func (w *warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (w *warnings) Handle(context.Context, slog.Record) error    { w.count++; return nil }

// What a scheduler that starts reads on nodes.
func TestEvictionsOnNodes(t *testing.T) {
	for text, want := range map[string]int{
		"0": 0, "7": 7, "1048575": 1048575, "1048576": -1, "-1": -1, "99999999999999999999": -1, "": -1, "many": -1, "1.5": -1, " 7": -1, "0x7": -1,
	} {
		t.Run(text, func(t *testing.T) {
			w := newWorld(t, spotGPU)
			log := &warnings{Handler: slog.DiscardHandler}
			w.m.log = slog.New(log)
			w.node("a", "r")
			w.node("b", "r", func(n *v1.Node) { n.Annotations = map[string]string{v1alpha1.EvictionsAnnotation: text} })
			w.settle()
			for range 3 { // each report of the kubelet shows it again
				w.m.nodeSeen(objects.TrimNode(w.nodes["b"]))
				w.settle()
			}
			wrong := 0
			if want < 0 {
				want, wrong = 0, 1
			}
			if got := w.m.engine.Evictions("b"); got != want || log.count != wrong {
				t.Errorf("the count is %d after %d warnings, expected %d after %d", got, log.count, want, wrong)
			}
			w.pod("hp")
			if want > 0 {
				w.on("hp>b")
			} else {
				w.on("hp>a")
			}
			if got := w.counts(); got != "" {
				t.Errorf("to be written: %q", got)
			}
		})
	}
}
