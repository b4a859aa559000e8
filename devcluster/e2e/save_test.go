package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/devcluster/fleet"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/console"
)

// saves has the processes of a pod save their progress when they are asked to, before the pod leaves.
func saves(p *v1.Pod) {
	note(v1alpha1.CheckpointIntervalAnnotation, "1h")(p)
	note(v1alpha1.CheckpointWithinAnnotation, "30s")(p)
	note(fleet.SavesTo, "volume")(p)
}

// withAgents has nodes of a test have agents.
func (c *cluster) withAgents(nodes ...string) {
	c.Helper()
	at, err := os.ReadFile(filepath.Join(agents, "address"))
	c.must(err)
	for _, name := range nodes {
		c.editNode(name, func(n *v1.Node) { metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AgentAnnotation, string(at)) })
	}
}

// eventOf waits until there is an event of a reason on a pod with these texts in its message.
func (c *cluster) eventOf(p *v1.Pod, reason string, says ...string) {
	c.Helper()
	c.until(p.Name+" has the event "+reason, func() error {
		list, err := admin.CoreV1().Events(c.namespace).List(ctx(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(p.UID)})
		if err != nil {
			return err
		}
		var found []string
		for i := range list.Items {
			if e := &list.Items[i]; e.Reason == reason && saysAll(e.Message, says) {
				return nil
			}
			found = append(found, list.Items[i].Reason+": "+list.Items[i].Message)
		}
		return fmt.Errorf("expected %q; it has %q", says, found)
	})
}

// goesOn reports from which pod's progress a pod goes on; empty for none.
func goesOn(p *v1.Pod) string {
	k := condition(p, fleet.Restored)
	if k == nil {
		return ""
	}
	_, from, _ := strings.Cut(k.Message, "saved by pod ")
	return from
}

// A user moves a pod of a gang whose processes save themselves. All save, the Job is suspended and resumed, and the pods that it makes go on
// where those before were: one on the node that the user named, one in its old place.
func TestMoveBySaving(t *testing.T) {
	c := begin(t)
	c.schedule(pausing)
	j, were := c.spread(note(v1alpha1.MinMemberAnnotation, "2"), saves, note(fleet.PauseTakes, "200ms"))
	c.withAgents("n0", "n1")
	c.node("n2")
	c.until("the scheduler knows", func() error { return c.openNodes(3) })
	people, told := c.people(), []string{}
	asked := console.Migrate{Namespace: c.namespace, Name: were[0].Name, Node: "n2", Wait: patience, Pause: 50 * time.Millisecond, Idle: patience, Tell: func(line string) { told = append(told, line) }}
	c.must(people.Migrate(ctx(), &asked))
	if text := strings.Join(told, "\n"); !strings.Contains(text, were[0].Name+" has left node") || !strings.Contains(text, " runs on node n") {
		t.Errorf("the command says:\n%s", text)
	}
	now := j.running()
	if now[0].Spec.NodeName != "n2" || now[1].Spec.NodeName != were[1].Spec.NodeName {
		t.Errorf("the pods are on %s and %s", now[0].Spec.NodeName, now[1].Spec.NodeName)
	}
	for i := range now {
		c.eventOf(&were[i], "Saved")
		if from := goesOn(&now[i]); from != were[i].Name {
			t.Errorf("pod %d goes on from what %q saved; expected %s", i, from, were[i].Name)
		}
	}
	j.unharmed()
	for name, says := range map[string]string{now[0].Name: "is on node n2 already", "train": "has 2 pods that run: name one of them", "nothing": "nothing"} {
		again := asked
		if again.Name = name; people.Migrate(ctx(), &again) == nil || !strings.Contains(people.Migrate(ctx(), &again).Error(), says) {
			t.Errorf("%s: expected an error that says %q", name, says)
		}
	}
}

// A pod that restarts alone, off a drained node, saves itself alone; the other pod of its Job runs on.
func TestDrainBySaving(t *testing.T) {
	c := begin(t)
	c.schedule(pausing)
	j, were := c.spread(saves)
	c.withAgents("n0", "n1")
	delete(j.before, were[1].UID) // it stays
	c.must(c.drain(were[0].Spec.NodeName, patience))
	now := j.running()
	if from := goesOn(&now[0]); from != were[0].Name || now[0].Spec.NodeName != were[1].Spec.NodeName {
		t.Errorf("pod 0 goes on from what %q saved, on %s", from, now[0].Spec.NodeName)
	}
	j.unharmed()
}

// What goes wrong while the pods of a gang save themselves: they are tried again, or restart without.
func TestMoveBySavingFails(t *testing.T) {
	for _, x := range []struct {
		name  string
		pods  func(*v1.Pod)
		nodes []string // with agents
		saved bool
		says  string // if not
	}{
		{name: "late once", pods: note(fleet.GoalFails, "Save=Late*1"), nodes: []string{"n0", "n1"}, saved: true},
		{name: "an answer is lost", pods: note(fleet.GoalFails, "Gate=unanswered*1"), nodes: []string{"n0", "n1"}, saved: true},
		{name: "disk full", pods: note(fleet.PauseFails, "no space left on device"), nodes: []string{"n0", "n1"}, says: "no space left on device"},
		{name: "not durable", pods: note(fleet.SavesTo, ""), nodes: []string{"n0", "n1"}, says: "outlives"},
		{name: "one agent is missing", pods: func(*v1.Pod) {}, nodes: []string{"n0"}, says: "the agent of node n1: "},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := begin(t)
			c.schedule(pausing)
			j, were := c.spread(note(v1alpha1.MinMemberAnnotation, "2"), saves, note(v1alpha1.CheckpointWithinAnnotation, "3s"), x.pods)
			c.withAgents(x.nodes...)
			c.node("n2")
			c.until("the scheduler knows", func() error { return c.openNodes(3) })
			c.move(&were[0], "n2")
			now := j.running()
			if now[0].Spec.NodeName != "n2" {
				t.Errorf("pod 0 is on %s", now[0].Spec.NodeName)
			}
			for i := range now {
				want := ""
				if x.saved {
					want = were[i].Name
				} else {
					c.eventOf(&were[i], "NotSaved", x.says)
				}
				if from := goesOn(&now[i]); from != want {
					t.Errorf("pod %d goes on from what %q saved; expected %q", i, from, want)
				}
			}
			j.unharmed()
		})
	}
}

// A scheduler ends while the pods of a gang save themselves. The next one finds the request, has them saved again, and moves the pod.
func TestMoveBySavingRestarted(t *testing.T) {
	c := begin(t)
	first := c.schedule(pausing)
	j, were := c.spread(note(v1alpha1.MinMemberAnnotation, "2"), saves, note(fleet.PauseTakes, "2s"))
	c.withAgents("n0", "n1")
	c.node("n2")
	c.until("the scheduler knows", func() error { return c.openNodes(3) })
	c.move(&were[0], "n2")
	c.until("the pods are asked to save", func() error { return c.scheduler.log.has("asking the processes of pods to save their progress") })
	first.stop()
	for i := range were {
		if p := c.get(were[i].Name); p.UID != were[i].UID || p.DeletionTimestamp != nil {
			t.Fatalf("pod %d left before it was saved", i)
		}
	}
	c.schedule(pausing)
	now := j.running()
	if now[0].Spec.NodeName != "n2" {
		t.Errorf("pod 0 is on %s", now[0].Spec.NodeName)
	}
	for i := range now {
		if from := goesOn(&now[i]); from != were[i].Name {
			t.Errorf("pod %d goes on from what %q saved; expected %s", i, from, were[i].Name)
		}
	}
	j.unharmed()
}

// makesRoom has the pods of a job save their progress when they are asked to, within 30 s; they do not restart elsewhere.
func makesRoom(p *v1.Pod) {
	note(v1alpha1.CheckpointWithinAnnotation, "30s")(p)
	note(fleet.SavesTo, "volume-"+p.Name)(p)
}

// A gang of a Job makes room for others: its pods save themselves together, those of the others run, and when they have ended the pods that the
// Job makes go on from there.
func TestRoomBySaving(t *testing.T) {
	c := begin(t)
	high := c.priority("urgent", 1000)
	c.schedule(pausing)
	j, were := c.spread(note(v1alpha1.MinMemberAnnotation, "2"), makesRoom, note(fleet.PauseTakes, "200ms"))
	c.withAgents("n0", "n1")
	c.create(pod("high-0", asks(8), high), pod("high-1", asks(8), high))
	c.bound("high-0", "high-1")
	for i := range were {
		c.eventOf(&were[i], "Saved")
	}
	c.delete("high-0", "high-1")
	now := j.running()
	for i := range now {
		if from := goesOn(&now[i]); from != were[i].Name {
			t.Errorf("pod %d goes on from what %q saved; expected %s", i, from, were[i].Name)
		}
	}
	j.unharmed()
}

// bareGang has a gang run whose pods no owner has.
func (c *cluster) bareGang(options ...func(*v1.Pod)) (pods []*v1.Pod) {
	c.Helper()
	c.group("train", 2)
	for _, name := range []string{"train-0", "train-1"} {
		c.create(pod(name, append([]func(*v1.Pod){asks(8), ofGroup("train"), makesRoom}, options...)...))
	}
	c.bound("train-0", "train-1")
	c.phase(v1.PodRunning, "train-0", "train-1")
	return []*v1.Pod{c.get("train-0"), c.get("train-1")}
}

// A gang that no owner has saves itself together, too, before its pods leave one by one, also if a scheduler ends meanwhile: pods that are made
// again with their names go on from there.
func TestBareGangMakesRoomBySaving(t *testing.T) {
	for name, restarted := range map[string]bool{"as it is": false, "a scheduler ends": true} {
		t.Run(name, func(t *testing.T) {
			c := begin(t)
			high := c.priority("urgent", 1000)
			c.nodesNamed("n", 2)
			c.withAgents("n0", "n1")
			first := c.schedule(pausing)
			were := c.bareGang(note(fleet.PauseTakes, "1s"))
			c.create(pod("high", asks(8), high))
			if restarted {
				c.until("the pods are asked to save", func() error { return first.log.has("asking the processes of pods to save their progress") })
				first.stop()
				for _, p := range were {
					if now := c.get(p.Name); now.UID != p.UID || now.DeletionTimestamp != nil {
						t.Fatalf("%s left before it was saved", p.Name)
					}
				}
				c.schedule(pausing)
			}
			c.gone(were...)
			for _, p := range were {
				c.eventOf(p, "Saved")
			}
			c.bound("high")
			c.delete("high")
			for _, name := range []string{"train-0", "train-1"} {
				c.create(pod(name, asks(8), ofGroup("train"), makesRoom))
			}
			c.phase(v1.PodRunning, "train-0", "train-1")
			for _, name := range []string{"train-0", "train-1"} {
				if from := goesOn(c.get(name)); from != name {
					t.Errorf("%s goes on from what %q saved", name, from)
				}
			}
		})
	}
}

// Pods that take longer to save themselves than the policy gives them, or longer than they say, leave without, and say so.
func TestRoomBySavingFails(t *testing.T) {
	for _, x := range []struct {
		name  string
		grace time.Duration
		pods  func(*v1.Pod)
		says  string
	}{
		{"they say so", 29 * time.Second, func(*v1.Pod) {}, "they take 30s, and the policy gives them 29s"},
		{"they are late", 3 * time.Second, func(p *v1.Pod) {
			note(v1alpha1.CheckpointWithinAnnotation, "3s")(p)
			note(fleet.PauseTakes, "1h")(p)
		}, "asked to"},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := begin(t)
			high := c.priority("urgent", 1000)
			c.nodesNamed("n", 2)
			c.withAgents("n0", "n1")
			c.schedule(pausing, func(k *kube.Config) { k.Policy.Preempt.EvictGrace = core.Time(x.grace) })
			were := c.bareGang(x.pods)
			c.create(pod("high", asks(8), high))
			c.gone(were...)
			for _, p := range were {
				c.eventOf(p, "NotSaved", x.says)
			}
			c.bound("high")
		})
	}
}
