package e2e

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/lease"
)

// A scheduler whose loop is stuck ends itself, though it renews its lease all the time, and another takes over.
func TestStuckLoop(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.forgetLeases()
	as := func(name string) func(*kube.Config) {
		return func(k *kube.Config) {
			k.Leader = lease.Leader{
				Namespace: systemNamespace, Identity: name,
				LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 500 * time.Millisecond,
			}
		}
	}
	stuck := &hang{at: "stuck", over: make(chan struct{})}
	t.Cleanup(func() { close(stuck.over) })
	cable := &cable{}
	first := c.schedule(as("first"), func(k *kube.Config) {
		k.Record, k.PassLimit = stuck, 4*time.Second
		k.API = throughCable(k.API, cable)
	})
	c.create(pod("before"))
	c.bound("before")
	c.start(as("second"))
	c.create(pod("stuck"))
	select {
	case <-first.ended:
	case <-time.After(patience):
		t.Fatal("a scheduler whose loop is stuck goes on")
	}
	cable.cut.Store(true) // as when its process has ended
	if first.err == nil || !strings.Contains(first.err.Error(), "a scheduling pass has lasted longer than 4s") {
		t.Errorf("it ended with %v", first.err)
	}
	c.leads("second")
	c.bound("stuck")
}

// hang does not return when it is told of a job whose name has a part.
type hang struct {
	at   string
	over chan struct{}
}

func (h *hang) Began(core.Time, core.Config) {}

func (h *hang) Told(_ core.Time, ev core.Event) {
	if s, ok := ev.(core.JobSubmitted); ok && strings.Contains(s.Job.Name, h.at) {
		<-h.over
	}
}

func (h *hang) Decided(core.Time, []core.Decision, core.Counter) {}

// A scheduler that is killed and starts again on the same host is another one: it does not take the lease
// for its own, under which requests of the one before may still be under way.
func TestIdentityIsUnique(t *testing.T) {
	c := begin(t)
	c.node("n")
	c.forgetLeases()
	holder := func() (who string, renewed time.Time) {
		l, err := admin.CoordinationV1().Leases(systemNamespace).Get(ctx(), lease.Name, metav1.GetOptions{})
		if err != nil || l.Spec.HolderIdentity == nil || l.Spec.RenewTime == nil {
			return "", time.Time{}
		}
		return *l.Spec.HolderIdentity, l.Spec.RenewTime.Time
	}
	flags := append([]string{"--leader-elect"}, quickLease...)
	p := c.process(flags...)
	c.create(pod("a"))
	c.bound("a")
	p.kill()
	first, last := holder()
	q := c.process(flags...)
	c.create(pod("b"))
	c.bound("b")
	second, _ := holder()
	l, err := admin.CoordinationV1().Leases(systemNamespace).Get(ctx(), lease.Name, metav1.GetOptions{})
	c.must(err)
	if first == "" || first == second {
		t.Errorf("the first was %q, the second is %q", first, second)
	}
	if since := l.Spec.AcquireTime.Sub(last); since < 3*time.Second {
		t.Errorf("it took the lease %v after its last renewal, which is good for 3 s", since)
	}
	q.interrupt()
}
