package e2e

import (
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube"
)

// ledgers removes what an earlier test left, and returns a question for what is there of a queue and of a job.
func (c *cluster) ledgers() (of func(queue, job string) (v1alpha1.LedgerQueue, v1alpha1.LedgerJob)) {
	c.Helper()
	c.must(muster.Delete().Resource("ledgers").Do(ctx()).Error())
	return func(queue, job string) (q v1alpha1.LedgerQueue, j v1alpha1.LedgerJob) {
		list := &v1alpha1.LedgerList{}
		c.must(muster.Get().Resource("ledgers").Do(ctx()).Into(list))
		for _, o := range list.Items {
			for _, x := range o.Queues {
				if x.Name == queue {
					q = x
				}
			}
			for _, x := range o.Jobs {
				if x.Name == c.namespace+"/"+job {
					j = x
				}
			}
		}
		return q, j
	}
}

// unowned makes a queue without quota.
func unowned(q *v1alpha1.Queue) { q.Spec.Quota = nil }

// A scheduler that starts again knows what queues received: the one that got nothing is next. Without that both would be even,
// and ahead the first by name.
func TestGPUTimeSurvivesRestart(t *testing.T) {
	c := begin(t)
	of := c.ledgers()
	inTime := func(k *kube.Config) { k.Policy.Queueing.Order = core.LongTermFairness }
	c.node("n")
	c.queue("ahead", 0, unowned)
	c.queue("behind", 0, unowned)
	old := &v1alpha1.Ledger{ObjectMeta: metav1.ObjectMeta{Name: "shard-5-part-1"}, At: metav1.NewMicroTime(time.Now().Add(-time.Hour)), Jobs: []v1alpha1.LedgerJob{{Name: "gone/pod/gone", Deserved: "1"}}}
	c.must(muster.Post().Resource("ledgers").Body(old).Do(ctx()).Error())
	s := c.schedule(inTime)
	c.create(pod("hog", asks(8), in("ahead")))
	c.bound("hog")
	c.create(pod("late", asks(8), in("behind")))
	c.unbound("late")
	c.until("it is written what the queue and the jobs received and deserved", func() error {
		q, late := of("ahead", "pod/late")
		_, hog := of("ahead", "pod/hog")
		if len(q.Received) < 10 || len(hog.Received) < 10 || len(late.Deserved) < 10 {
			return fmt.Errorf("found %v, %v and %v", q, hog, late)
		}
		return nil
	})
	c.until("an object that is no longer needed is deleted", func() error {
		if err := muster.Get().Resource("ledgers").Name(old.Name).Do(ctx()).Error(); !apierrors.IsNotFound(err) {
			return fmt.Errorf("found %v", err)
		}
		return nil
	})
	s.stop()
	hog := c.get("hog")
	c.delete("hog")
	c.gone(hog)
	c.create(pod("again", asks(8), in("ahead")))
	c.schedule(inTime)
	c.bound("late")
	c.unbound("again")
	c.create(pod("later", asks(8), in("behind")))
	c.waits("later", "Resources", "queue ahead is before queue behind: indexes ")
	c.until("the status of the queues says where they stand", func() error {
		q := &v1alpha1.Queue{}
		if err := muster.Get().Resource("queues").Name("ahead").Do(ctx()).Into(q); err != nil {
			return err
		}
		if s := q.Status.GPUTime; s == nil || s.Received == "0.000" || s.Deserved == "0.000" || s.Index == "0.000" {
			return fmt.Errorf("found %+v", s)
		}
		return nil
	})
}

// The grace period of a stale gang goes on when the scheduler starts again.
func TestStaleGangSurvivesRestart(t *testing.T) {
	c := begin(t)
	of := c.ledgers()
	patient := func(k *kube.Config) { k.Policy.Requeue.StaleGrace = core.Time(time.Hour) }
	c.node("n")
	c.group("g", 2)
	gang := c.several("g", 0, 2, ofGroup("g"))
	s := c.schedule(patient)
	c.bound(gang...)
	lost := c.get(gang[0])
	c.delete(gang[0])
	c.gone(lost)
	since := (*metav1.MicroTime)(nil)
	c.until("it is written since when the gang is stale", func() error {
		_, j := of("", "podgroup/g")
		if since = j.StaleSince; since == nil {
			return fmt.Errorf("found %v", j)
		}
		return nil
	})
	s.stop()
	c.schedule(patient)
	c.ledgers() // it is written again, as this scheduler knows it
	c.until("it is written again since when the gang is stale", func() error {
		if _, j := of("", "podgroup/g"); j.StaleSince == nil || !j.StaleSince.Equal(since) {
			return fmt.Errorf("found %v, expected %v", j.StaleSince, since)
		}
		return nil
	})
}
