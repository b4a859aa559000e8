package mirror

import (
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/queues"
	"github.com/muster-sched/muster/kube/tables"
)

// jobPod is a pod of a Job that runs, as its controller made it.
func jobPod(p *v1.Pod) *v1.Pod {
	ownedBy("batch/v1", "Job", "j")(p)
	p.Finalizers = []string{"example.com/other", batchv1.JobTrackingFinalizer}
	p.Spec.NodeName, p.Status.Phase = "a", v1.PodRunning
	p.ResourceVersion = "7"
	return p
}

// What an instance left without the finalizer gets it back from the next, unless that
// evicts it itself.
func TestPodThatWasNotEvicted(t *testing.T) {
	y := newToy(t)
	y.node("a", 8)
	p := jobPod(newTestPod("p", 8))
	p.Finalizers, p.Annotations[v1alpha1.EvictingAnnotation] = nil, "true"
	done := jobPod(newTestPod("done", 1))
	done.Finalizers, done.Annotations[v1alpha1.EvictingAnnotation] = nil, "true"
	done.Status.Phase = v1.PodSucceeded
	y.see(p, done)
	y.start()
	counted := func() (names []string) {
		for _, x := range y.decide(y.now).Count {
			names = append(names, x.Name)
		}
		y.acts.Drop()
		slices.Sort(names)
		return names
	}
	// Not those of another instance, nor one that is on its way to another node.
	y.Shards.Held[0] = false
	if got := counted(); len(got) > 0 {
		t.Errorf("%v are counted again, on which another instance decides", got)
	}
	y.Shards.Held[0], y.Pods["p"].Moves = true, true
	if got := counted(); !slices.Equal(got, []string{"done"}) {
		t.Errorf("%v are counted again while p moves", got)
	}
	y.Pods["p"].Moves = false
	if got := counted(); !slices.Equal(got, []string{"p"}) { // and done no more
		t.Fatalf("%v are counted again", got)
	}
	// The same as this instance evicts it: the write is seen before the pod is gone.
	y.Pods["p"].State = tables.PodLeaving
	y.see(p)
	if got := counted(); len(got) > 0 {
		t.Errorf("%v are counted again, which are to be evicted", got)
	}
}

// The annotation on a pod of no Job gives it no finalizer.
func TestEvictingAnnotationAlone(t *testing.T) {
	for what, c := range map[string]struct {
		owner change[*v1.Pod]
		want  int
	}{
		"no owner":              {func(*v1.Pod) {}, 0},
		"a ReplicaSet":          {ownedBy("apps/v1", "ReplicaSet", "x"), 0},
		"another group's Job":   {ownedBy("example.com/v1", "Job", "x"), 0},
		"a Job that owns alone": {func(p *v1.Pod) { ownedBy("batch/v1", "Job", "x")(p); p.OwnerReferences[0].Controller = nil }, 0},
		"a Job":                 {ownedBy("batch/v1", "Job", "x"), 1},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			w.node("n", "r")
			w.pod("a", inQueue(queues.Default), c.owner)
			w.on("a>n")
			w.pod("a", func(p *v1.Pod) { p.Annotations[v1alpha1.EvictingAnnotation] = "true" })
			acts := w.m.decide(w.m.Now + core.Second)
			if len(acts.Count) != c.want {
				t.Errorf("%d are given the finalizer, want %d", len(acts.Count), c.want)
			}
			w.m.acts.Drop()
		})
	}
}
