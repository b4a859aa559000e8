package e2e

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/lease"
)

// load is sets of singles, gangs and parts of GPUs, which all fit together on as
// many nodes of eight GPUs as room says.
func (c *cluster) load(rng *rand.Rand, sets int) (room int) {
	c.Helper()
	for set := range sets {
		used := 16 + 4
		for i := range 12 {
			name := fmt.Sprintf("gang%d-%d", set, i)
			n, each := 2+rng.IntN(4), 1<<rng.IntN(4)
			c.group(name, n)
			c.several(name, 0, n, asks(each), ofGroup(name))
			used += (n*each + 7) / 8 * 8
		}
		c.several(fmt.Sprintf("single%d", set), 0, 16)
		c.several(fmt.Sprintf("part%d", set), 0, 16, asks(0), note(v1alpha1.GPUFractionAnnotation, "0.25"))
		room += (used+7)/8 + 2
	}
	return room
}

// allBound waits until every pod of the test has a node.
func (c *cluster) allBound() {
	c.Helper()
	c.until("all pods are bound", func() error {
		list, err := admin.CoreV1().Pods(c.namespace).List(ctx(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		waiting := 0
		for i := range list.Items {
			if list.Items[i].Spec.NodeName == "" {
				waiting++
			}
		}
		if waiting > 0 {
			return fmt.Errorf("%d of %d wait", waiting, len(list.Items))
		}
		return nil
	})
}

// A scheduler that is stopped and started again while it has much to do goes on
// where the last one was: what runs stays where it is, no GPU is given twice,
// and all is bound in the end.
func TestRestart(t *testing.T) {
	c := begin(t)
	rng := rand.New(rand.NewPCG(1, 2))
	seen := c.watch()
	c.nodesNamed("n", c.load(rng, 1))
	for range 12 {
		s := c.start()
		// At any moment: before it has listed, when it is about to decide, and after
		// some bindings.
		switch wanted := rng.IntN(16); wanted {
		case 0:
		case 1:
			select {
			case <-s.Ready():
			case <-s.ended:
				t.Fatalf("the scheduler ended: %v", s.err)
			}
		default:
			wanted += seen.bindings()
			c.until("some more is bound", func() error {
				if n := seen.bindings(); n < wanted && c.bindings(10) != nil {
					return fmt.Errorf("%d are; expected %d", n, wanted)
				}
				return nil
			})
		}
		s.stop()
		c.auditNodes()
	}
	c.schedule()
	c.allBound()
	if left := seen.left(); len(left) > 0 {
		t.Errorf("these are gone: %v", left)
	}
	seen.stayed(t)
}

// A new scheduler knows which GPUs are taken, and that a gang is whole.
func TestRestartKeepsDevices(t *testing.T) {
	c := begin(t)
	c.node("n", mixed)
	c.schedule()
	c.group("train", 2)
	c.bound(c.several("train", 0, 2, asks(2), ofGroup("train"))...)
	c.create(pod("half", asks(0), note(v1alpha1.GPUFractionAnnotation, "0.5")))
	c.bound("half")
	c.scheduler.stop()
	c.several("rest", 0, 3)
	c.create(pod("other-half", asks(0), note(v1alpha1.GPUFractionAnnotation, "0.5")), pod("surplus"))
	c.schedule()
	c.bound("rest-0", "rest-1", "rest-2", "other-half")
	c.waits("surplus", "Resources")
	// The audit looks at the devices.
}

// When a node is gone while no scheduler runs, and its pods with it, a new one
// is none the worse.
func TestRestartAfterNodeLoss(t *testing.T) {
	c := begin(t)
	c.nodesNamed("n", 2)
	c.schedule()
	c.create(pod("a", asks(8)), pod("b", asks(8)))
	on := c.bound("a", "b")
	c.scheduler.stop()
	c.must(admin.CoreV1().Nodes().Delete(ctx(), on[0], metav1.DeleteOptions{}))
	c.schedule()
	c.create(pod("c", asks(8)))
	c.waits("c", "Resources")
	c.kill("a")
	c.kill("b")
	if got := c.bound("c")[0]; got != on[1] {
		t.Errorf("it is on %s; expected %s", got, on[1])
	}
}

// Of two instances one decides. When it steps down, the other does at once;
// when it is cut off, it stops, and the other takes over when the lease is over.
func TestLeaderElection(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.forgetLeases()
	as := func(name string) func(*kube.Config) {
		return func(k *kube.Config) { k.Leader = lease.Leader{Namespace: systemNamespace, Identity: name} }
	}
	first := c.schedule(as("first"))
	c.leads("first")
	second := c.start(as("second"))
	c.create(pod("a"))
	c.bound("a")
	select {
	case <-second.Ready():
		t.Fatal("both instances decide")
	default:
	}
	first.stop()
	c.leads("second")
	c.create(pod("b"))
	c.bound("b")

	cable := &cable{}
	second.stop()
	third := c.schedule(as("third"), func(k *kube.Config) { k.API = throughCable(k.API, cable) })
	c.leads("third")
	c.start(as("fourth"))
	cable.cut.Store(true)
	c.create(pod("c"))
	c.bound("c")
	c.leads("fourth")
	select {
	case <-third.ended:
	case <-time.After(patience):
		t.Fatal("an instance that lost the lease goes on")
	}
	if third.err == nil {
		t.Error("an instance that lost the lease ended as if it had been asked to")
	}
}

// leads waits until an instance holds the lease.
func (c *cluster) leads(identity string) {
	c.Helper()
	c.until(identity+" leads", func() error {
		l, err := admin.CoordinationV1().Leases(systemNamespace).Get(ctx(), lease.Name, metav1.GetOptions{})
		if err == nil && (l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != identity) {
			err = fmt.Errorf("the lease is %+v", l.Spec)
		}
		return err
	})
}

// stayed fails the test when a pod was seen on more than one node.
func (s *sight) stayed(t *testing.T) {
	t.Helper()
	s.catchUp()
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, nodes := range s.places {
		if len(nodes) > 1 {
			t.Errorf("pod %s was on %d nodes", s.pods[uid].Name, len(nodes))
		}
	}
}

// throughCable sends all that goes to the API through a cable.
func throughCable(c *rest.Config, cable *cable) *rest.Config {
	c = rest.CopyConfig(c)
	c.Wrap(cable.wrap)
	return c
}
