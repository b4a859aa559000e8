package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/lease"
)

// shares starts an instance that shares the cluster with others.
func (c *cluster) shares(name string, shards []lease.Shard, options ...func(*kube.Config)) *scheduler {
	c.Helper()
	return c.start(append([]func(*kube.Config){func(k *kube.Config) {
		k.Leader, k.Shards = lease.Leader{Namespace: systemNamespace, Identity: name}, shards
	}}, options...)...)
}

// holding waits until instances hold as many shards as said, and all are held.
func (c *cluster) holding(want map[*scheduler]int) {
	c.Helper()
	c.until("each instance has its shards", func() error {
		for s, n := range want {
			if got := s.Holds(); len(got) != n {
				return fmt.Errorf("one has %v, not %d", got, n)
			}
		}
		return nil
	})
}

func parseShards(t *testing.T, list ...string) []lease.Shard {
	t.Helper()
	shards, err := lease.ParseShards(list)
	if err != nil {
		t.Fatal(err)
	}
	return shards
}

// forgetLeases deletes what the test's schedulers agreed by, when they have ended.
func (c *cluster) forgetLeases() {
	c.Cleanup(func() {
		for _, s := range c.schedulers {
			s.stop()
		}
		c.must(admin.CoordinationV1().Leases(systemNamespace).DeleteCollection(ctx(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	})
}

// Instances share a cluster by pool. One that comes gets its part, one that ends
// hands over at once, and one that is cut off loses its shards when its leases are
// over, with gangs and bindings under way; nothing is bound twice.
func TestShards(t *testing.T) {
	c := begin(t)
	c.forgetLeases()
	seen := c.watch()
	for _, model := range []string{"H800", "A100"} {
		c.nodesNamed("n-"+map[string]string{"H800": "h", "A100": "a"}[model], 16, gpus(8, model))
	}
	c.node("cpu", gpus(0, "none"))
	shards := parseShards(t, "H800", "A100", "*")
	onModel := func(m string) string { return map[string]string{"H800": "n-h", "A100": "n-a"}[m] }
	// jobs makes gangs and singles of each model, and waits until they are bound on it.
	round := 0
	jobs := func() (check func()) {
		round++
		var all []string
		models := map[string]string{}
		for _, m := range []string{"H800", "A100"} {
			gang := fmt.Sprintf("gang%d-%s", round, onModel(m))
			c.group(gang, 16)
			names := c.several(gang, 0, 16, ofGroup(gang), note(v1alpha1.GPUModelsAnnotation, m))
			names = append(names, c.several(fmt.Sprintf("single%d-%s", round, onModel(m)), 0, 4, note(v1alpha1.GPUModelsAnnotation, m))...)
			for _, n := range names {
				models[n] = m
			}
			all = append(all, names...)
		}
		none := fmt.Sprintf("none%d", round)
		c.create(pod(none, asks(0)))
		return func() {
			c.Helper()
			for i, node := range c.bound(all...) {
				if want := onModel(models[all[i]]); node[:3] != want {
					c.Errorf("%s is on %s", all[i], node)
				}
			}
			c.bound(none)
			c.auditNodes()
		}
	}
	first := c.shares("first", shards, func(k *kube.Config) { k.Leader.LeaseDuration = time.Hour })
	c.holding(map[*scheduler]int{first: 3})
	jobs()()

	// The second gets a part while there is much to do.
	check := jobs()
	second := c.shares("second", shards)
	c.holding(map[*scheduler]int{first: 2, second: 1})
	check()
	jobs()()
	// The first ends as it should: the second has all before any lease of it runs out.
	check = jobs()
	first.stop()
	c.holding(map[*scheduler]int{second: 3})
	check()

	// The third is cut off in the midst of a gang.
	cable := &cable{}
	third := c.shares("third", shards, func(k *kube.Config) {
		k.API, k.Workers = throughCable(k.API, cable), 1
		k.API.Wrap(func(to http.RoundTripper) http.RoundTripper {
			left := atomic.Int64{}
			left.Store(5)
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				answer, err := to.RoundTrip(r)
				if strings.HasSuffix(r.URL.Path, "/binding") && left.Add(-1) == 0 {
					cable.cut.Store(true)
				}
				return answer, err
			})
		})
	})
	c.holding(map[*scheduler]int{second: 2, third: 1})
	if held := third.Holds()[0]; held != "H800" {
		t.Fatalf("the third has %s", held)
	}
	check = jobs()
	c.until("the third is cut off", func() error {
		if !cable.cut.Load() {
			return errors.New("it is not")
		}
		return nil
	})
	torn := 0
	for i := range 16 {
		if c.get(fmt.Sprintf("gang%d-n-h-%d", round, i)).Spec.NodeName != "" {
			torn++
		}
	}
	if torn == 0 || torn == 16 {
		t.Errorf("%d pods of the gang are bound: nothing was under way", torn)
	}
	last := jobs()
	c.holding(map[*scheduler]int{second: 3})
	check()
	last()
	select {
	case <-third.ended:
		if third.err == nil {
			t.Error("an instance that lost its lease ended as if it had been asked to")
		}
	case <-time.After(patience):
		t.Fatal("an instance that lost its lease goes on")
	}
	if left := seen.left(); len(left) > 0 {
		t.Errorf("these are gone: %v", left)
	}
	seen.stayed(t)
}

// Instances that divide the pools otherwise do not decide beside each other, those
// included that do not divide them at all.
func TestShardsOtherwise(t *testing.T) {
	c := begin(t)
	c.forgetLeases()
	c.nodesNamed("n", 2, gpus(8, "H800"))
	whole := c.shares("whole", nil)
	c.holding(map[*scheduler]int{whole: 1})
	divided := c.shares("divided", parseShards(t, "H800", "*"))
	c.create(pod("a"))
	c.bound("a")
	c.until("it waits for the other", func() error { return divided.log.has("another instance schedules") })
	if held := divided.Holds(); len(held) > 0 {
		t.Errorf("it decides on %v", held)
	}
	whole.stop()
	c.holding(map[*scheduler]int{divided: 2})
	c.create(pod("b", note(v1alpha1.GPUModelsAnnotation, "H800")))
	c.bound("b")
	again := c.shares("again", nil)
	c.until("it waits for the other", func() error { return again.log.has("another instance schedules") })
	divided.stop()
	c.holding(map[*scheduler]int{again: 1})
	c.create(pod("d"))
	c.bound("d")
}

// With bad cables, clocks that jump, and instances that come, end and are cut off
// while there is much to do, everything is bound in the end, nothing twice.
func TestShardsChaos(t *testing.T) {
	c := begin(t)
	c.forgetLeases()
	seen := c.watch()
	rng := rand.New(rand.NewPCG(7, 7))
	pools := []string{"east", "west", "north"}
	load := func(round int) {
		for _, pool := range pools {
			in := label(v1alpha1.PoolLabel, pool)
			only := func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1alpha1.PoolLabel: pool} }
			gang := fmt.Sprintf("gang%d-%s", round, pool)
			n := 2 + rng.IntN(6)
			c.group(gang, n)
			c.several(gang, 0, n, asks(2), ofGroup(gang), in, only)
			c.several(fmt.Sprintf("single%d-%s", round, pool), 0, 4, in, only)
			c.several(fmt.Sprintf("part%d-%s", round, pool), 0, 4, asks(0), note(v1alpha1.GPUFractionAnnotation, "0.5"), in, only)
		}
	}
	const rounds = 4
	for _, pool := range pools { // 14 + 4 + 2 GPUs a round at most, and what cannot be together
		c.nodesNamed(pool, 8*rounds, func(n *v1.Node) { n.Labels[v1alpha1.PoolLabel] = pool })
	}
	shards := parseShards(t, "east", "west", "*")
	serial := 0
	join := func() *scheduler {
		serial++
		bad := &cable{rng: rand.New(rand.NewPCG(7, uint64(serial))), counts: map[string]int{}}
		bad.bad.Store(100)
		clock := &leaps{rng: rand.New(rand.NewPCG(8, uint64(serial)))}
		return c.shares(fmt.Sprint("i", serial), shards, func(k *kube.Config) {
			k.API, k.Now = throughCable(k.API, bad), clock.now
		})
	}
	instances := []*scheduler{join(), join(), join()}
	// One that ends, for it could not reach the API at the start or lost a lease, is
	// followed by another, as the kubelet does it.
	living := func(check func() error) func() error {
		return func() error {
			for i, s := range instances {
				select {
				case <-s.ended:
					instances[i] = join()
				default:
				}
			}
			return check()
		}
	}
	for round := range rounds {
		load(round)
		c.until("each has a shard", living(func() error {
			for _, s := range instances {
				if held := s.Holds(); len(held) != 1 {
					return fmt.Errorf("one has %v", held)
				}
			}
			return c.bindings(8)
		}))
		i := rng.IntN(len(instances))
		load(rounds + round)
		instances[i].stop()
		instances[i] = join()
		c.auditNodes()
	}
	c.until("all pods are bound", living(func() error { return c.bindings(10) }))
	seen.stayed(t)
	taken := 0
	for _, s := range c.schedulers {
		s.stop()
		taken += strings.Count(s.log.String(), "this instance schedules")
	}
	if taken <= len(shards) {
		t.Errorf("shards were taken %d times: none was ever handed over", taken)
	}
	t.Logf("%d instances took shards %d times", len(c.schedulers), taken)
}
