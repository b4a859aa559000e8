package mirror

import (
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// hugeExponent is an exponent for which resource.ParseQuantity, or a comparison, computes for minutes: an API server, too,
// so that none comes from there.
var hugeExponent = regexp.MustCompile(`[eE][+-]?[0-9]{4}`)

// FuzzDecisions plays programs of pods and nodes, from objects to decisions and back. A
// line is a verb, a name, and what is said: requests, and labels and annotations after a
// "+":
//
//	pod a cpu=5P nvidia.com/gpu=1 +muster.sh/gang=g +muster.sh/min-member=2
//	node n cpu=9E
//	gone a
//
// Nothing panics, the engine refuses nothing that the tables say, no device is given
// twice, and no node gives out more than it has.
func FuzzDecisions(f *testing.F) {
	for _, seed := range []string{
		"pod a cpu=5P nvidia.com/gpu=1 +muster.sh/gang=g +muster.sh/min-member=2\npod b cpu=5P nvidia.com/gpu=1 +muster.sh/gang=g +muster.sh/min-member=2\npod c cpu=1 nvidia.com/gpu=1\n",
		strings.Repeat("pod a cpu=3P +muster.sh/gang=g +muster.sh/min-member=7\n", 7),
		"pod a cpu=9E\npod b cpu=200G memory=7E\npod c nvidia.com/gpu=2305843009213693960\npod d nvidia.com/gpu=18446744073709552\npod e +gpu-fraction=NaN\n",
		"node n cpu=9E memory=9E\npod a cpu=281474976710\npod b cpu=281474976710\npod c memory=4E\npod d memory=4E\n",
		"pod a +gpu-fraction=0.5\npod b +gpu-fraction=0.5\npod c nvidia.com/gpu=8\ngone a\npod d nvidia.com/gpu=8\nnode m nvidia.com/gpu=4\n",
		"pod a nvidia.com/gpu=8 +muster.sh/min-runtime=100y\npod b nvidia.com/gpu=8 +muster.sh/class=LP\npod c nvidia.com/gpu=8 +muster.sh/priority-class=x\ngone b\n",
		"pod a rdma/hca=9E\nnode n rdma/hca=9E\npod b rdma/hca=256Ti\npod c rdma/hca=256Ti\n",
		"bound a n cpu=9E nvidia.com/gpu=4 +muster.sh/gpus=0,1,2,3\nbound b n cpu=9E memory=9E nvidia.com/gpu=4 +muster.sh/gpus=0,1,2,3\npod c nvidia.com/gpu=4\ngone a\ngone b\npod d nvidia.com/gpu=4\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, program string) {
		if len(program) > 2000 {
			return
		}
		playProgram(t, program)
	})
}

// Random programs of what the fuzzer would take long to put together: a number of
// pods and nodes with requests, labels and annotations that mean something.
func TestRandomPrograms(t *testing.T) {
	n := uint64(100_000)
	if testing.Short() {
		n = 2000
	}
	for seed := range n {
		program := randomProgram(rand.New(rand.NewPCG(seed, 0)))
		if playProgram(t, program); t.Failed() {
			t.Fatalf("the program of seed %d:\n%s", seed, program)
		}
	}
}

func randomProgram(rng *rand.Rand) string {
	one := func(of ...string) string { return of[rng.IntN(len(of))] }
	quantity := func() string {
		return one("0", "1", "2", "4", "8", "500m", "1Gi", "64Gi", "5P", "9E", "7Ei", "256Ti", "281474976710", "2305843009213693960")
	}
	note := func() string {
		switch key := one("gang", "min-member", "gpu-fraction", "gpu-memory", "gpus", "share", "class", "queue", "preemptible", "locked",
			"min-runtime", "walltime", "gpu-models", "required-topology", "priority-class"); key {
		case "gang":
			return "+muster.sh/gang=" + one("g", "h")
		default:
			return "+muster.sh/" + key + "=" + one("1", "2", "7", "0.5", "0.25", "NaN", "Inf", "-1", "1e300", "0", "0,1,2,3", "7,7", "100y", "36500d", "10m",
				"LP", "HP", "true", "false", "rack", "a=1,b=2", "H800", "q", "")
		}
	}
	var b strings.Builder
	for range 1 + rng.IntN(12) {
		verb := one("pod", "pod", "pod", "pod", "bound", "gone", "node")
		b.WriteString(verb)
		switch verb {
		case "node":
			b.WriteString(" " + one("n", "m"))
		case "bound":
			b.WriteString(" " + one("a", "b", "c", "d", "e") + " " + one("n", "m"))
		default:
			b.WriteString(" " + one("a", "b", "c", "d", "e"))
		}
		for range rng.IntN(4) {
			b.WriteString(" " + one("cpu", "memory", "nvidia.com/gpu", "nvidia.com/gpu", "rdma/hca", "ephemeral-storage", "pods") + "=" + quantity())
		}
		for range rng.IntN(4) {
			b.WriteString(" " + note())
		}
		b.WriteString("\n")
	}
	return b.String()
}

// step lets happen what a line says.
func (w *world) step(verb, name string, said []string) {
	target := ""
	if verb == "bound" && len(said) > 0 {
		target, said = said[0], said[1:]
		if w.nodes[target] == nil || w.pods["default/"+name] != nil {
			return
		}
	}
	requests, notes := v1.ResourceList{}, map[string]string{}
	for _, s := range said {
		key, value, _ := strings.Cut(s, "=")
		if key, ok := strings.CutPrefix(key, "+"); ok {
			notes[key] = value
		} else if len(value) >= 40 || hugeExponent.MatchString(value) {
			continue
		} else if q, err := resource.ParseQuantity(value); err == nil {
			if allowed(verb, key, q) {
				requests[v1.ResourceName(key)] = q
			}
		}
	}
	switch verb {
	case "pod", "bound":
		there := w.pods["default/"+name] != nil
		w.pod(name, func(p *v1.Pod) {
			if !there { // the API server refuses changes of these
				p.Spec.Containers[0].Resources.Requests = requests
				p.Spec.NodeName = target
			}
			if p.Spec.NodeName == target {
				maps.Copy(p.Labels, notes)
			}
			for k, v := range notes {
				if k != v1alpha1.GPUsAnnotation && k != v1alpha1.ShareAnnotation || target != "" {
					p.Annotations[k] = v
				}
			}
		})
	case "gone":
		if w.pods["default/"+name] == nil {
			return
		}
		w.gone(name)
	case "node":
		w.node(name, "", func(n *v1.Node) {
			n.Status.Allocatable = maps.Clone(n.Status.Allocatable)
			maps.Copy(n.Status.Allocatable, requests)
		})
	}
	w.settle()
}

// allowed reports whether a quantity is one that the API server lets pass, and the
// oracle can add up: none below 0, whole but for CPU, which is in thousandths, and the
// GPUs of a node of one maker.
func allowed(verb, key string, q resource.Quantity) bool {
	name := v1.ResourceName(key)
	switch {
	case key == "" || q.Sign() < 0 || verb != "node" && name == v1.ResourcePods:
		return false
	case verb == "node" && name != v1alpha1.GPUResource && translate.GPUResources(v1.ResourceList{name: q}) != nil:
		return false
	case name == v1.ResourceCPU:
		return q.CmpInt64(1e9) > 0 || q.Cmp(*resource.NewMilliQuantity(q.MilliValue(), resource.DecimalSI)) == 0
	}
	return q.MilliValue()%1000 == 0
}

// fits fails the test if a binding gives out what others have.
func (w *world) fits(b *tables.Binding) {
	n := w.nodes[b.Node]
	free := n.Status.Allocatable.DeepCopy()
	var devices [64]core.Milli
	take := func(p *v1.Pod, notes map[string]string) {
		for name, q := range p.Spec.Containers[0].Resources.Requests {
			left := free[name]
			left.Sub(q)
			free[name] = left
		}
		if p.Spec.NodeName != "" && !slices.Contains(w.binds, p.Name+">"+p.Spec.NodeName) {
			return // what was written on it by others need not be true
		}
		gpus, _ := translate.ParseDevices(notes[v1alpha1.GPUsAnnotation])
		share := translate.Share(&v1.Pod{ObjectMeta: metaWith(notes)})
		for _, d := range gpus {
			devices[d] += share
		}
	}
	for _, p := range w.pods {
		if p.Spec.NodeName == b.Node {
			take(p, p.Annotations)
		}
	}
	p := w.pods[b.Of.Object.Namespace+"/"+b.Of.Object.Name]
	if p == nil {
		return
	}
	take(p, b.Annotations)
	for name, q := range p.Spec.Containers[0].Resources.Requests {
		if left := free[name]; q.Sign() > 0 && left.Sign() < 0 {
			w.t.Errorf("%s is bound to %s, where %s is %s then", p.Name, b.Node, name, left.String())
		}
	}
	gpus, _ := translate.ParseDevices(b.Annotations[v1alpha1.GPUsAnnotation])
	for _, d := range gpus {
		if devices[d] > core.WholeGPU {
			w.t.Errorf("GPU %d of %s is given twice: %s", d, b.Node, p.Name)
		}
	}
}

func metaWith(notes map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Annotations: notes}
}

// playProgram lets happen what a program says, on two nodes.
func playProgram(t *testing.T, program string) {
	w := newWorld(t)
	w.m.record = nil
	w.onBind = func(b *tables.Binding) bool { w.fits(b); return true }
	w.node("n", "r1")
	w.node("m", "r2")
	steps := 0
	for line := range strings.Lines(program) {
		if words := strings.Fields(line); len(words) > 1 && steps < 30 {
			steps++
			w.step(words[0], words[1], words[2:])
		}
	}
	w.now = w.now.Add(time.Hour)
	w.settle()
	w.m.Explain(100)
	if w.m.panics.Broken || w.m.panics.Jobs > 0 {
		t.Error("the engine panicked")
	}
	for _, q := range w.m.Stats().Queues {
		for model, used := range q.Used {
			if used < 0 {
				t.Errorf("queue %s uses %d of %s", q.Name, used, model)
			}
		}
	}
}
