package tables

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/objects"
)

// The pods of a gang are paused when the one that leads says so: it says so last.
func TestPausedByLead(t *testing.T) {
	says := func(p *Pod, reason, lead string) {
		p.Object.Pause = &objects.Pause{Reason: reason, GPUs: 3, Had: &objects.Had{Lead: types.UID(lead)}}
	}
	for _, x := range []struct {
		name, lead, other string
		want              bool
	}{
		{"all were told", v1alpha1.PausedPaused, v1alpha1.PausedPaused, true},
		{"the one that leads was not", v1alpha1.PausedPausing, v1alpha1.PausedPaused, false},
		{"it goes on already", v1alpha1.PausedResuming, v1alpha1.PausedPaused, false},
		{"it is gone", "", v1alpha1.PausedPaused, true},
		{"the other is not paused", v1alpha1.PausedPausing, v1alpha1.PausedPausing, false},
	} {
		a, b := member("a", ""), member("b", "")
		list := []*Pod{a, b}
		if says(b, x.other, "a"); x.lead == "" {
			list = list[1:]
		} else {
			says(a, x.lead, "a")
		}
		g := groupOf(list...)
		for i, p := range list {
			p.State, p.Slot, p.Target = PodBound, i, "n"
		}
		if got := b.Paused(); got != x.want {
			t.Errorf("%s: %v", x.name, got)
		}
		found, ev, ok := g.FoundPaused()
		if ok != x.want || ok && (len(found) != len(list) || len(ev.Pods) != len(list) || ev.Pods[0].GPUs != 3 || ev.Pods[0].Node != "n") {
			t.Errorf("%s: found %d, %+v, %v", x.name, len(found), ev, ok)
		}
	}
}

// A gang takes the most that a pod of it takes, and cannot be suspended if one of its pods cannot.
func TestSuspensionOfGang(t *testing.T) {
	tb := &Tables{}
	a, b := member("a", ""), member("b", "")
	g := groupOf(a, b)
	a.Object.Pausable = core.Suspension{Pause: 1, Resume: 5, HostMemMiB: 10}
	b.Object.Pausable = core.Suspension{Pause: 2, Resume: 4, HostMemMiB: 20}
	if why := tb.NotPausable(g, a); !strings.Contains(why, "no gang") {
		t.Errorf("two pods that are no gang: %q", why)
	}
	g.Min = 2
	if got := tb.SuspensionOf(g, a); got != (core.Suspension{Pause: 2, Resume: 5, HostMemMiB: 20}) {
		t.Errorf("it is %+v", got)
	}
	if why := g.NotPausable(); why != "" {
		t.Errorf("both can be paused: %q", why)
	}
	b.Measured = core.Suspension{Pause: 9}
	if got := tb.SuspensionOf(g, a); got.Pause != 9 {
		t.Errorf("b took longer: %+v", got)
	}
	b.Object.NotPausable = "it is Guaranteed"
	if why := g.NotPausable(); tb.NotPausable(g, a) != "" || !strings.Contains(why, "pod b cannot be: it is Guaranteed") || tb.SuspensionOf(g, a) != (core.Suspension{}) {
		t.Errorf("b cannot be paused: %q", why)
	}
	b.Object.NotPausable, b.Object.Pausable = "", core.Suspension{}
	if why := g.NotPausable(); !strings.Contains(why, "pod b has no "+v1alpha1.PausableAnnotation) || tb.SuspensionOf(g, b) != (core.Suspension{}) {
		t.Errorf("b says nothing: %q", why)
	}
}
