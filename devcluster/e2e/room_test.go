package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

// A gang waits although enough GPUs are free, because they are scattered: a pod of a service
// moves to another node, and the gang starts. The service always has all its pods.
func TestRoomByMoving(t *testing.T) {
	c := begin(t)
	c.schedule()
	s := c.scattered()
	c.node("n2")
	gang := c.several("train", 0, 2, asks(8), ofGang("train", 2))
	c.bound(gang...)
	s.onlyOn(s.podsWith("app", "serve")[0].Spec.NodeName)
	s.neverFewer()
}

// Three nodes have two GPUs free each, and a pod of six waits: the pod of one service goes to the third
// node, then that of another goes to its place, and the pod starts on the first node.
func TestRoomInWaves(t *testing.T) {
	c := begin(t)
	c.schedule()
	c.nodesNamed("n", 3)
	fill := func(name, node string, gpus int) {
		c.create(pod(name, asks(gpus), func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelHostname: node} }))
		c.bound(name)
	}
	fill("x", "n0", 2)
	fill("y", "n1", 4)
	fill("z", "n2", 6)
	fill("f1", "n1", 4)
	fill("f2", "n2", 2)
	large := c.deployment("large", 1, asks(4), mobile)
	fill("f0", "n0", 2)
	c.kill("f1")
	small := c.service(1, asks(2), mobile)
	c.kill("f0")
	c.kill("f2")
	c.create(pod("big", asks(6)))
	c.bound("big")
	small.onlyOn("n2")
	large.onlyOn("n1")
	small.neverFewer()
	large.neverFewer()
}

// The scheduler is killed while it makes room: the next one finishes the move, and the gang
// starts.
func TestRoomKilled(t *testing.T) {
	c := begin(t)
	p := c.process()
	s := c.scattered()
	c.node("n2")
	gang := c.several("train", 0, 2, asks(8), ofGang("train", 2))
	c.until("a pod is detached", func() error {
		for _, p := range c.podsWith(v1alpha1.MovingLabel, "true") {
			if metav1.GetControllerOf(&p) == nil {
				return nil
			}
		}
		if c.get(gang[0]).Spec.NodeName != "" {
			return nil // it was, and has left
		}
		return errors.New("none is")
	})
	p.kill()
	p = c.process()
	defer p.interrupt()
	c.bound(gang...)
	s.neverFewer()
}

func ofGang(name string, least int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		label(v1alpha1.GangLabel, name)(p)
		note(v1alpha1.MinMemberAnnotation, fmt.Sprint(least))(p)
	}
}

// spread makes a Job of two pods with two GPUs each, each alone on its node, n0 and n1. It returns
// the pods by index.
func (c *cluster) spread(options ...func(*v1.Pod)) (*job, []v1.Pod) {
	c.Helper()
	c.nodesNamed("n", 2)
	c.create(pod("on-n0", asks(6), onNode("n0")), pod("on-n1", asks(6), onNode("n1")))
	c.bound("on-n0", "on-n1")
	j := c.twoPods(append([]func(*v1.Pod){asks(2)}, options...)...)
	pods := j.running()
	for i, p := range pods {
		if j.before[p.UID] = true; p.Spec.NodeName == pods[1-i].Spec.NodeName {
			c.Fatalf("both pods are on %s", p.Spec.NodeName)
		}
	}
	c.kill("on-n0")
	c.kill("on-n1")
	c.until("the scheduler knows", func() error {
		s, err := c.scheduler.Stats(ctx())
		if err == nil && s.Bound != 2 {
			err = fmt.Errorf("it takes %d pods for bound", s.Bound)
		}
		return err
	})
	return j, pods
}

// twoPods makes the Job train of two pods.
func (c *cluster) twoPods(options ...func(*v1.Pod)) *job {
	c.Helper()
	c.job("train", &batchv1.JobSpec{
		Parallelism: ptr.To[int32](2), Completions: ptr.To[int32](2), CompletionMode: ptr.To(batchv1.IndexedCompletion), BackoffLimit: ptr.To[int32](0),
		Template: podTemplate(options...),
	})
	return &job{cluster: c, before: map[types.UID]bool{}}
}

// job is the Job train, of which the pods in before are to restart.
type job struct {
	*cluster
	before map[types.UID]bool
}

// running waits until two pods run that are not those from before, and returns them by index.
func (j *job) running() (pods []v1.Pod) {
	j.Helper()
	j.until("both pods run", func() error {
		pods = slices.DeleteFunc(j.podsWith(batchv1.JobNameLabel, "train"), func(p v1.Pod) bool { return p.DeletionTimestamp != nil || j.before[p.UID] })
		for i := range pods {
			if pods[i].Status.Phase != v1.PodRunning {
				return fmt.Errorf("%s is %s on %q", pods[i].Name, pods[i].Status.Phase, pods[i].Spec.NodeName)
			}
		}
		if len(pods) != 2 {
			return fmt.Errorf("there are %d", len(pods))
		}
		return nil
	})
	slices.SortFunc(pods, func(a, b v1.Pod) int {
		return strings.Compare(a.Labels[batchv1.JobCompletionIndexAnnotation], b.Labels[batchv1.JobCompletionIndexAnnotation])
	})
	return pods
}

// unharmed fails the test if the Job counts a pod as failed, or is suspended.
func (j *job) unharmed() {
	j.Helper()
	o, err := admin.BatchV1().Jobs(j.namespace).Get(ctx(), "train", metav1.GetOptions{})
	if j.must(err); o.Status.Failed > 0 || ptr.Deref(o.Spec.Suspend, false) {
		j.Errorf("the Job is %+v", o.Status)
	}
}

// A job waits for a whole node, and a gang that checkpoints has a pod on each: the gang's Job is
// suspended and resumed, and its pods come back by index, to the places that the engine keeps.
// The pod that is not in the way returns to its own GPUs.
func TestRoomByRestart(t *testing.T) {
	c := begin(t)
	s := c.schedule()
	j, were := c.spread(note(v1alpha1.MinMemberAnnotation, "2"), note(v1alpha1.CheckpointIntervalAnnotation, "1s"))
	c.create(pod("big", asks(8)))
	j.leaves()
	c.create(pod("thief", asks(6))) // it has room while the pods are gone, but for the places that are kept
	big := c.bound("big")[0]
	for i, p := range j.running() {
		if p.Spec.NodeName == big {
			t.Errorf("pod %d is on %s, as big is", i, big)
		}
		if old := were[i]; old.Spec.NodeName != big && (p.Spec.NodeName != old.Spec.NodeName || p.Annotations[v1alpha1.GPUsAnnotation] != old.Annotations[v1alpha1.GPUsAnnotation]) {
			t.Errorf("pod %d was on %s, GPUs %s, and came back to %s, GPUs %s", i, old.Spec.NodeName, old.Annotations[v1alpha1.GPUsAnnotation], p.Spec.NodeName, p.Annotations[v1alpha1.GPUsAnnotation])
		}
	}
	c.waits("thief", core.Resources.String())
	j.unharmed()
	c.must(s.log.has("suspending an owner until its pods are gone"))
}

// The pods of a Job that is no gang restart one by one: only the one in the way is evicted, which
// does not count as a failure, and the pod that the Job makes in its place gets the place that is
// kept for it.
func TestRoomByEviction(t *testing.T) {
	c := begin(t)
	c.schedule()
	j, were := c.spread(note(v1alpha1.CheckpointIntervalAnnotation, "1s"))
	c.create(pod("big", asks(8)))
	big := c.bound("big")[0]
	for _, p := range were {
		if p.Spec.NodeName != big {
			delete(j.before, p.UID) // it stays
		}
	}
	for i, p := range j.running() {
		if p.Spec.NodeName == big {
			t.Errorf("pod %d is on %s, as big is", i, big)
		}
	}
	j.unharmed()
}

// Pods without an owner, and jobs that say that they stay, do not restart for another.
func TestRoomLeavesOthersAlone(t *testing.T) {
	c := begin(t)
	c.schedule()
	j, were := c.spread(note(v1alpha1.MobilityAnnotation, "stays"))
	c.create(pod("big", asks(8)))
	c.waits("big", core.Stranded.String())
	clear(j.before)
	for i, p := range j.running() {
		if p.UID != were[i].UID {
			t.Errorf("pod %d is another", i)
		}
	}
}

// A queue owns eight GPUs, and what is free, or borrowed, is in pieces on two nodes. By one plan the borrower is
// evicted and a pod of a Job that checkpoints restarts elsewhere, and the owner gets its node.
func TestRoomInPieces(t *testing.T) {
	c := begin(t)
	c.queue("a", 8)
	c.queue("b", 8)
	c.schedule()
	c.nodesNamed("n", 2)
	c.create(pod("on-n0", asks(4), onNode("n0")), pod("on-n1", asks(4), onNode("n1")))
	c.bound("on-n0", "on-n1")
	j := c.twoPods(asks(4), in("a"), note(v1alpha1.CheckpointIntervalAnnotation, "1s"))
	were := j.running()
	c.kill("on-n0")
	c.kill("on-n1")
	c.create(pod("borrower", asks(2), in("a"), note(v1alpha1.ClassAnnotation, "LP"), onNode("n1"))) // after the Job by rank
	c.bound("borrower")
	borrower := c.get("borrower")
	c.create(pod("owner", asks(8), in("b")))
	owner := c.bound("owner")[0]
	c.gone(borrower)
	for _, p := range were {
		if p.Spec.NodeName == owner {
			j.before[p.UID] = true // the other one stays
		}
	}
	for i, p := range j.running() {
		if p.Spec.NodeName == owner {
			t.Errorf("pod %d is on %s, as the owner is", i, owner)
		}
	}
	j.unharmed()
}
