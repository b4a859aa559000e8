package mirror

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

// A node is drained on which a gang of a Job has a pod: the Job is suspended, and its pods come back
// to places that are kept, on the other node, though others arrive meanwhile. Nothing is kept where
// there is no room: the gang waits like any other.
func TestDrainedGangRestartsElsewhere(t *testing.T) {
	for name, room := range map[string]bool{"with room": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			// It does not checkpoint: it leaves in any case.
			s := newTraining(t, func(p *v1.Pod) { delete(p.Annotations, v1alpha1.CheckpointIntervalAnnotation) })
			if !room {
				s.pod("full", asking(v1alpha1.GPUResource, "6"), at("o"))
				s.on("full>o")
			}
			s.node("n", "", drained("10m"))
			if got := s.leave(); !slices.Equal(got, []string{"!!train-0-0", "!!train-1-0"}) {
				t.Fatalf("%v leave", got)
			}
			s.pod("thief", asking(v1alpha1.GPUResource, "6"))
			s.settle()
			s.gone("train-0-0")
			s.gone("train-1-0")
			s.generation++
			s.resume()
			if room {
				s.on("thief>")
				s.make(0)
				s.make(1)
				s.on("train-0-1,train-1-1>o,o", "thief>")
				return
			}
			s.settle()
			s.make(0)
			s.make(1)
			s.on("train-0-1,train-1-1>,")
		})
	}
}

// Pods of a StatefulSet that checkpoints leave a drained node one by one, and a place is kept for the
// one that comes again; without checkpoints they leave as they did.
func TestDrainedReplicaRestartsElsewhere(t *testing.T) {
	for _, saves := range []bool{true, false} {
		w := newWorld(t)
		w.node("n", "r1")
		w.node("o", "r1")
		with := []change[*v1.Pod]{of("apps/v1", "StatefulSet", "s"), asking(v1alpha1.GPUResource, "2")}
		if saves {
			with = append(with, noted(v1alpha1.CheckpointIntervalAnnotation, "1m"))
		}
		w.pod("s-0", append(with, at("n"))...)
		w.pod("s-1", append(with, at("o"))...)
		w.on("s-0>n", "s-1>o")
		// The selectors were for where they start.
		for _, name := range []string{"s-0", "s-1"} {
			w.pod(name, func(p *v1.Pod) { p.Spec.NodeSelector = nil })
		}
		w.restart()
		w.settle()
		w.node("n", "", drained("10m"))
		want := []string{"s-0"}
		if saves {
			want = []string{"!s-0"}
		}
		if got := w.leave(); !slices.Equal(got, want) {
			t.Fatalf("checkpoints: %v, and %v leave", saves, got)
		}
		w.pod("thief", asking(v1alpha1.GPUResource, "6"))
		if !saves {
			w.on("thief>o")
			continue
		}
		w.on("thief>")
		w.gone("s-0")
		w.pod("s-0", with...)
		w.on("s-0>o", "thief>")
	}
}

// A user moves a pod of a gang that checkpoints: the gang restarts, and that pod goes to the node. The
// pods of a job are moved together if the requests say so.
func TestMoveByRestart(t *testing.T) {
	s := newTraining(t)
	s.node("p", "r1")
	s.pod("train-0-0", noted(v1alpha1.MoveAnnotation, "o now of=2"))
	if got := s.leave(); len(got) > 0 {
		t.Fatalf("%v leave, and one of two is asked for", got)
	}
	s.pod("train-1-0", noted(v1alpha1.MoveAnnotation, "p now of=2"))
	s.now = s.now.Add(1e9)
	a := s.m.decide(core.Time(s.now.UnixNano()))
	if len(a.Suspend) != 1 || len(a.Suspend[0].Evict) != 2 || a.Suspend[0].Evict[0].Reason != "Moving" {
		t.Fatalf("suspended: %+v", a.Suspend)
	}
	s.m.acts.Drop()
	s.gone("train-0-0")
	s.gone("train-1-0")
	s.generation++
	s.resume()
	s.make(0)
	s.make(1)
	s.on("train-0-1>o", "train-1-1>p")
}

// Requests that cannot be met are answered.
func TestMoveByRestartRefused(t *testing.T) {
	for name, c := range map[string]struct {
		with change[*v1.Pod]
		to   string
		want string
	}{
		"no room":                  {func(*v1.Pod) {}, "small", "pod 0 of job default/job/train does not fit on node small"},
		"where it is":              {func(*v1.Pod) {}, "n", "is on node n already"},
		"it has no checkpoints":    {func(p *v1.Pod) { delete(p.Annotations, v1alpha1.CheckpointIntervalAnnotation) }, "o", "the pod must not be moved: expected muster.sh/mobility: replaceable"},
		"its owner wants it there": {noted(v1alpha1.MobilityAnnotation, "stays"), "o", "the pod must not be moved"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTraining(t, c.with)
			s.node("small", "r1", func(n *v1.Node) { n.Status.Allocatable[v1alpha1.GPUResource] = resource.MustParse("1") })
			s.pod("train-0-0", noted(v1alpha1.MoveAnnotation, c.to))
			s.now = s.now.Add(1e9)
			a := s.m.decide(core.Time(s.now.UnixNano()))
			if len(a.Stay) != 1 || !strings.Contains(a.Stay[0].Message, c.want) || len(a.Suspend)+len(a.Evict) > 0 {
				t.Errorf("told: %+v; %d leave", a.Stay, len(a.Suspend)+len(a.Evict))
			}
			s.m.acts.Drop()
		})
	}
}
