package mirror

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-sched/muster/kube/owners"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// A JobSet whose workers wait for its driver has a gang for each: the driver does not wait for pods that are made when
// it runs, and the workers start together. A scheduler that starts again knows the stages of pods that run from the
// pods, and of others from their JobSet.
func TestStages(t *testing.T) {
	set := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": map[string]any{
		"replicatedJobs": []any{
			map[string]any{"name": "driver"},
			map[string]any{"name": "workers", "replicas": int64(2), "dependsOn": []any{map[string]any{"name": "driver", "status": "Ready"}}},
		},
	}}}
	w := newWorld(t)
	w.tells = true
	w.node("n1", "r1")
	ask := func(name string) {
		t.Helper()
		says := &owners.Gang{}
		if err := says.Under(set); err != nil {
			t.Fatal(err)
		}
		w.settle()
		w.m.asked(translate.Group{Namespace: "default", Kind: "jobset", Name: name}, says, nil)
		w.settle()
		w.m.asked(translate.Group{Namespace: "default", Kind: "jobset", Name: name + "/driver"}, says, nil)
		w.m.asked(translate.Group{Namespace: "default", Kind: "jobset", Name: name + "/workers"}, says, nil)
		w.settle()
	}
	of := func(role string) change[*v1.Pod] {
		return labelled("jobset.sigs.k8s.io/jobset-name=train", "jobset.sigs.k8s.io/replicatedjob-name="+role)
	}
	w.pod("driver", of("driver"))
	ask("train")
	w.on("driver>n1")
	w.inGroup("driver", "jobset/train/driver", 1)
	w.pod("w0", of("workers"))
	w.settle() // it is known by now that this is another stage
	w.inGroup("w0", "jobset/train/workers", 1)
	ask("train")
	w.waits("w0", tables.ReasonCollecting, "1 of the 2 pods")

	w.restart()
	w.inGroup("driver", "jobset/train/driver", 1)
	w.inGroup("w0", "jobset/train", 1) // until its JobSet was read
	ask("train")
	w.waits("w0", tables.ReasonCollecting, "1 of the 2 pods")
	w.pod("w1", of("workers"))
	ask("train")
	w.on("driver,w0,w1>n1,n1,n1")
	w.inGroup("w1", "jobset/train/workers", 3)

	// Pods of the stage that are made again join it.
	w.gone("w0")
	w.pod("w2", of("workers"))
	w.on("driver,w1,w2>n1,n1,n1")
	w.inGroup("w2", "jobset/train/workers", 3)
	w.gone("driver")
	w.gone("w1")
	w.gone("w2")
	w.settle()
	if len(w.m.Stages) > 0 || len(w.m.Groups) > 0 {
		t.Errorf("%d owners and %d groups are kept when no pod is there", len(w.m.Stages), len(w.m.Groups))
	}
}
