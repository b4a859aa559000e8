package mirror

import (
	"testing"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/tables"
)

// A queue says which classes and kinds its jobs have, how long they are, and whether they can be
// protected, whatever their labels and annotations say.
func TestJobsOfAQueue(t *testing.T) {
	w := newWorld(t)
	w.node("n", "r")
	q := queueObject("q", "", v1alpha1.Quota{Model: "*", Nominal: GPUs(8)})
	q.Spec.Classes, q.Spec.Kinds = []v1alpha1.JobClass{"LP"}, []v1alpha1.JobKind{"batch", "training"}
	q.Spec.MaxWalltime, q.Spec.Protection = v1alpha1.Duration(3600*core.Second), "Forbidden"
	w.m.queueSeen(q)
	lp := v1alpha1.ClassAnnotation + "=LP"
	for name, c := range map[string]struct{ says, want string }{
		"class":         {v1alpha1.ClassAnnotation + "=HP", "class HP: expected LP"},
		"no-class":      {v1alpha1.UserAnnotation + "=x", "class HP: expected LP"},
		"kind":          {v1alpha1.KindAnnotation + "=inference", "kind inference: expected batch or training"},
		"long":          {v1alpha1.WalltimeAnnotation + "=61m", "run time of 1h1m: expected at most 1h"},
		"locked":        {v1alpha1.LockedAnnotation + "=true", "locked jobs"},
		"unpreemptible": {v1alpha1.PreemptibleAnnotation + "=false", "not preemptible"},
		"fits":          {v1alpha1.WalltimeAnnotation + "=60m", ""},
	} {
		says := []string{c.says}
		if name != "class" && name != "no-class" {
			says = append(says, lp)
		}
		w.pod(name, inQueue("q"), labelled(says...))
		if c.want == "" {
			w.on(name + ">n")
		} else {
			w.waits(name, tables.ReasonJobForbidden, c.want)
		}
	}
	q = q.DeepCopy()
	q.Spec.Classes = nil
	w.m.queueSeen(q)
	w.on("class>n", "kind>")
}
