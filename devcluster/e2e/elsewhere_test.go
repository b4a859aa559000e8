package e2e

import (
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/console"
)

// A node is drained on which a gang of a Job has a pod. Its Job is suspended and resumed, and its pods
// come back to places that are kept: a job that arrives meanwhile does not get them. The pod that is not on the
// node returns to its own GPUs.
func TestDrainRestartsElsewhere(t *testing.T) {
	c := begin(t)
	s := c.schedule()
	j, were := c.spread(note(v1alpha1.MinMemberAnnotation, "2"), lingers)
	drained, stays := were[0].Spec.NodeName, were[1]
	over := c.draining(drained, patience)
	j.leaves()
	c.create(pod("thief", asks(6))) // it has room while the pods are gone, but for the places that are kept
	c.must(<-over)
	for i, p := range j.running() {
		if p.Spec.NodeName != stays.Spec.NodeName {
			t.Errorf("pod %d is on %s", i, p.Spec.NodeName)
		}
		if i == 1 && p.Annotations[v1alpha1.GPUsAnnotation] != stays.Annotations[v1alpha1.GPUsAnnotation] {
			t.Errorf("pod 1 had GPUs %s, and came back to %s", stays.Annotations[v1alpha1.GPUsAnnotation], p.Annotations[v1alpha1.GPUsAnnotation])
		}
	}
	c.waits("thief", core.Resources.String())
	j.unharmed()
	c.must(s.log.has("suspending an owner until its pods are gone"))
}

// A pod of a Job that checkpoints leaves a drained node by itself, and the pod that the Job makes in its
// place gets the place that is kept for it.
func TestDrainRestartsOnePod(t *testing.T) {
	c := begin(t)
	c.schedule()
	j, were := c.spread(note(v1alpha1.CheckpointIntervalAnnotation, "1m"))
	delete(j.before, were[1].UID) // it stays
	c.must(c.drain(were[0].Spec.NodeName, patience))
	for i, p := range j.running() {
		if p.Spec.NodeName != were[1].Spec.NodeName {
			t.Errorf("pod %d is on %s", i, p.Spec.NodeName)
		}
	}
	j.unharmed()
}

// A user moves a pod of a gang that checkpoints: the gang restarts, and the pod comes back on the node.
func TestMoveByRestart(t *testing.T) {
	c := begin(t)
	c.schedule()
	j, were := c.spread(note(v1alpha1.MinMemberAnnotation, "2"), note(v1alpha1.CheckpointIntervalAnnotation, "1h"))
	c.node("n2")
	c.until("the scheduler knows", func() error { return c.openNodes(3) })
	c.move(&were[0], "n2")
	now := j.running()
	if now[0].Spec.NodeName != "n2" || now[1].Spec.NodeName != were[1].Spec.NodeName {
		t.Errorf("the pods are on %s and %s", now[0].Spec.NodeName, now[1].Spec.NodeName)
	}
	j.unharmed()
}

// A job that does not checkpoint, or that says that it stays, is not restarted because a user moves a pod.
func TestMoveByRestartRefused(t *testing.T) {
	for name, says := range map[string]func(*v1.Pod){
		"no checkpoints": func(*v1.Pod) {},
		"stays": func(p *v1.Pod) {
			note(v1alpha1.CheckpointIntervalAnnotation, "1h")(p)
			note(v1alpha1.MobilityAnnotation, "stays")(p)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := begin(t)
			c.schedule()
			_, were := c.spread(says)
			c.move(&were[0], "")
			c.moving(&were[0], v1alpha1.MovingRefused)
		})
	}
}

// A policy whose plans restart jobs frees a node: the gang that has a pod on each of two is suspended and
// resumed, and its pods come back to the places that are kept for them, on one node.
func TestDefragmentationRestarts(t *testing.T) {
	c := begin(t)
	c.schedule(func(k *kube.Config) {
		k.Policy.Defrag = core.Defrag{Every: core.Second / 2, Restarts: core.AllRestarts}
	})
	j, _ := c.spread(note(v1alpha1.MinMemberAnnotation, "2"), note(v1alpha1.CheckpointIntervalAnnotation, "1h"))
	if now := j.running(); now[0].Spec.NodeName != now[1].Spec.NodeName {
		t.Errorf("the pods are on %s and %s", now[0].Spec.NodeName, now[1].Spec.NodeName)
	}
	j.unharmed()
}

// A user who plans by hand gets the same restart under such a policy, and has it carried out.
func TestDefragByHandRestarts(t *testing.T) {
	c := begin(t)
	c.schedule(func(k *kube.Config) { k.Policy.Room = core.Room{} })
	j, were := c.spread(note(v1alpha1.MinMemberAnnotation, "2"), note(v1alpha1.CheckpointIntervalAnnotation, "1h"))
	people, err := console.New(address)
	c.must(err)
	doc, _ := policy.ByName("default")
	doc.Policy.Preempt.MinRuntime = 0
	doc.Policy.Defrag.Restarts = core.AllRestarts
	survey, err := people.Survey(ctx(), doc.Policy, nil)
	c.must(err)
	plan := survey.Consolidation(core.Defrag{Every: 3600 * core.Second})
	if len(plan.Moves) > 0 || len(plan.Restarts) != 2 || len(plan.Vacated) != 1 || plan.Restarts[0].From == plan.Restarts[0].To || plan.Restarts[1].From != plan.Restarts[1].To {
		t.Fatalf("the plan is %+v", plan)
	}
	requests, err := plan.Requests()
	c.must(err)
	c.must(people.Apply(ctx(), c.applying(requests)))
	if now := j.running(); now[0].Spec.NodeName != now[1].Spec.NodeName {
		t.Errorf("the pods were on %s and %s, and are on %s and %s", were[0].Spec.NodeName, were[1].Spec.NodeName, now[0].Spec.NodeName, now[1].Spec.NodeName)
	}
	j.unharmed()
}

// A job waits for a whole node, and a gang that checkpoints has a pod on each. A user's plan for the job restarts the
// gang, and says what that costs; the scheduler, whose policy makes no room by itself, carries it out.
func TestDefragForAJobByRestart(t *testing.T) {
	c := begin(t)
	c.schedule(func(k *kube.Config) { k.Policy.Room = core.Room{} }) // else the scheduler restarts it by itself
	j, were := c.spread(note(v1alpha1.MinMemberAnnotation, "2"), note(v1alpha1.CheckpointIntervalAnnotation, "1h"))
	c.create(pod("big", asks(8)))
	c.waits("big", core.Stranded.String())
	people, err := console.New(address)
	c.must(err)
	doc, _ := policy.ByName("default")
	doc.Policy.Preempt.MinRuntime = 0
	survey, err := people.Survey(ctx(), doc.Policy, nil)
	c.must(err)
	plan, err := survey.RoomFor(c.namespace, "big", core.Defrag{Partition: 500, Depth: 3, Rounds: 5})
	c.must(err)
	if len(plan.Moves) > 0 || len(plan.Restarts) != 2 || plan.Lost <= 0 || plan.Needed != 8*core.WholeGPU || plan.Restarts[0].Name != were[0].Name {
		t.Fatalf("the plan is %+v", plan)
	}
	requests, err := plan.Requests()
	c.must(err)
	c.must(people.Apply(ctx(), c.applying(requests)))
	big := c.bound("big")[0]
	for i, p := range j.running() {
		if p.Spec.NodeName == big {
			t.Errorf("pod %d is on %s, as big is", i, big)
		}
	}
	j.unharmed()
}

// leaves waits until all pods of the Job from before are being deleted.
func (j *job) leaves() {
	j.Helper()
	j.until("the pods leave", func() error {
		for _, p := range j.podsWith(batchv1.JobNameLabel, "train") {
			if j.before[p.UID] && p.DeletionTimestamp == nil {
				return fmt.Errorf("%s stays", p.Name)
			}
		}
		return nil
	})
}
