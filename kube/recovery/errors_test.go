package recovery

import (
	"encoding/json"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

const (
	ecc48   = "NVRM: Xid (PCI:0000:5e:00): 48, pid=7, name=python, DBE (double bit error) ECC"
	fault31 = "NVRM: Xid (PCI:0000:5e:00): 31, pid=7, name=python, MMU Fault"
	noRoom  = "Traceback (most recent call last):\n  File \"train.py\", line 2, in <module>\n    torch.zeros(8).cuda()\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB\n"
	access  = "step 10/100 loss 2.0\ntorch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
)

// reports lets the agent of a node publish errors of the driver, each so long ago.
func (w *world) reports(node, text string, ago ...time.Duration) {
	w.t.Helper()
	var all []v1alpha1.GPUError
	for _, a := range ago {
		all = append(all, v1alpha1.GPUError{At: metav1.NewMicroTime(wall(w.now).Add(-a)), PCI: "0000:5e:00.0", Text: text})
	}
	value, err := json.Marshal(all)
	if err != nil {
		w.t.Fatal(err)
	}
	w.h.ObserveNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Annotations: map[string]string{v1alpha1.GPUErrorsAnnotation: string(value)}}})
}

// classes are what the engine was told of failures.
func (w *world) classes() (out []string) {
	for _, ev := range w.told {
		if d, ok := ev.(core.JobDiagnosed); ok {
			out = append(out, d.Class)
		}
	}
	w.told = nil
	return out
}

// A failure is read in the light of what the driver reported of its node.
func TestDriverErrors(t *testing.T) {
	is := func(w *world, want string) {
		t.Helper()
		if got := w.classes(); len(got) != 1 || got[0] != want {
			t.Errorf("found %v, expected %s", got, want)
		}
	}
	t.Run("an ECC error", func(t *testing.T) {
		w := newWorld(t, core.Recover)
		w.reports("n1", ecc48, time.Hour)
		w.fails("train-1", "n2", noRoom)
		is(w, "framework/software")
		w.fails("train-2", "n1", noRoom)
		is(w, "infrastructure/gpu")
	})
	t.Run("the node is gone", func(t *testing.T) {
		w := newWorld(t, core.Recover)
		w.reports("n1", ecc48, time.Hour)
		w.h.Gone(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
		w.fails("train-1", "n1", noRoom)
		is(w, "framework/software")
	})
	t.Run("an error of programs, in two jobs", func(t *testing.T) {
		w := newWorld(t, core.Recover)
		w.reports("n1", fault31, 10*time.Second)
		w.fails("train-1", "n1", access)
		w.classes()
		w.now += core.Time(time.Hour)
		w.reports("n1", fault31, time.Hour+10*time.Second, 10*time.Second)
		w.fails("train-2", "n1", access)
		if got := w.classes(); len(got) != 1 || got[0] == "infrastructure/gpu" {
			t.Errorf("the same job again: %v", got)
		}
		w.now += core.Time(time.Hour)
		w.reports("n1", fault31, 2*time.Hour+10*time.Second, time.Hour+10*time.Second, 10*time.Second)
		w.failsOf("other", "other-1", "n1", access)
		is(w, "infrastructure/gpu")
	})
	t.Run("no program is known to have caused it", func(t *testing.T) {
		w := newWorld(t, core.Recover)
		w.reports("n1", fault31, 2*time.Minute) // before the pod started
		w.fails("train-1", "n1", access)
		w.classes()
		w.now += core.Time(time.Hour)
		w.reports("n1", fault31, time.Hour+2*time.Minute, 10*time.Second)
		w.failsOf("other", "other-1", "n1", access)
		if got := w.classes(); len(got) != 1 || got[0] == "infrastructure/gpu" {
			t.Errorf("found %v", got)
		}
	})
	t.Run("an annotation that is no list", func(t *testing.T) {
		w := newWorld(t, core.Recover)
		w.h.ObserveNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{v1alpha1.GPUErrorsAnnotation: "{"}}})
		w.fails("train-1", "n1", noRoom)
		is(w, "framework/software")
	})
}
