package e2e

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// An instance that is stopped in the midst of a burst, as by SIGSTOP or a suspended
// machine, and goes on when another has taken its lease, writes nothing any more: no
// GPU is ever given twice. With MUSTER_FULL it is tried fifty times, and a few times
// with the lease as it is by default.
func TestFrozenLeader(t *testing.T) {
	rounds := 4
	if os.Getenv("MUSTER_FULL") != "" {
		rounds = 50
	}
	frozen(t, rounds, quickLease)
}

func TestFrozenLeaderByDefault(t *testing.T) {
	if os.Getenv("MUSTER_FULL") == "" {
		t.Skip("a round takes half a minute; MUSTER_FULL=1 runs it")
	}
	frozen(t, 4, nil)
}

// The same where two instances share the cluster, and one of them is stopped.
func TestFrozenShard(t *testing.T) {
	rounds := 3
	if os.Getenv("MUSTER_FULL") != "" {
		rounds = 50
	}
	frozen(t, rounds, append([]string{"--shard", "east", "--shard", "*"}, quickLease...))
}

// quickLease has an instance that falls silent lose its leases soon.
var quickLease = []string{
	"--leader-elect-lease-duration", "3s", "--leader-elect-renew-deadline", "2s", "--leader-elect-retry-period", "500ms",
}

func frozen(t *testing.T, rounds int, flags []string) {
	c := begin(t)
	c.forgetLeases()
	rng := rand.New(rand.NewPCG(11, 11))
	high := c.priority("high", 1000)
	pools := []string{"east", "west"}
	const room = 2 * 16 * 8 // GPUs
	for _, pool := range pools {
		c.nodesNamed(pool, 16, inPool(pool))
	}
	books := c.books()
	defer func() {
		if twice := books.twice(); len(twice) > 0 {
			t.Errorf("%d pairs of pods had a GPU at the same time, such as %v", len(twice), twice[:min(3, len(twice))])
		}
	}()
	start := func() *process {
		return c.process(append([]string{"--leader-elect", "--workers", "8"}, flags...)...)
	}
	instances := []*process{start(), start()}
	shared := slices.Contains(flags, "--shard")
	// An instance may end because the machine was too busy for it to renew its lease in time:
	// another comes, as the kubelet does it. That which is stopped is the test's.
	victim := -1
	living := func(check func() error) func() error {
		return func() error {
			for i, p := range instances {
				if i != victim && p.hasEnded() {
					t.Logf("an instance ended by itself: %v", p.err)
					instances[i] = start()
				}
			}
			return check()
		}
	}
	for round := range rounds {
		c.until("the instances have their leases", living(func() error {
			held := c.holders()
			if len(held) == 0 || slices.Contains(slices.Collect(maps.Values(held)), "") {
				return fmt.Errorf("they have %v", held)
			}
			a, b := instances[0].holds(held), instances[1].holds(held)
			if a+b < len(held) || shared && a != b {
				return fmt.Errorf("one has %d, the other %d of %v", a, b, held)
			}
			return nil
		}))

		// 1. A burst, gangs first: a gang is decided on as a whole and bound pod by pod. The
		// instance is stopped when some of it is bound.
		before, some := books.bound(), 1+rng.IntN(60)
		burst := func(name string, n int, options ...func(*v1.Pod)) {
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					for j := i; j < n; j += 8 {
						pool := pools[j%2]
						p := pod(fmt.Sprintf("%s%d-%d", name, round, j), append(options, label(v1alpha1.PoolLabel, pool))...)
						p.Spec.NodeSelector = map[string]string{v1alpha1.PoolLabel: pool}
						if name == "gang" {
							ofGroup(fmt.Sprintf("gang%d-%s", round, pool))(p)
						}
						c.create(p)
					}
				})
			}
			all.Wait()
		}
		for _, pool := range pools {
			c.group(fmt.Sprintf("gang%d-%s", round, pool), 40)
		}
		low := make(chan bool)
		go func() {
			defer close(low)
			burst("gang", 80)
			burst("low", 120)
		}()
		c.until("some of the burst is bound", living(func() error {
			if n := books.bound() - before; n < some {
				return fmt.Errorf("%d are", n)
			}
			return nil
		}))
		first := rng.IntN(2)
		c.until("an instance with a lease is stopped", living(func() error {
			held := c.holders()
			for _, i := range []int{first, 1 - first} {
				if instances[i].holds(held) > 0 {
					victim = i
					return instances[i].Process.Signal(syscall.SIGSTOP)
				}
			}
			return fmt.Errorf("none has one: %v", held)
		}))
		p := instances[victim]
		bound := books.bound() - before
		<-low
		// 2. Others come, which go first.
		burst("high", 150, high)
		// 3. Another instance takes its leases, and has them while all of this is bound, or
		// begins to: the one that was stopped goes on then.
		c.until("its leases pass on", living(func() error {
			if held := c.holders(); p.holds(held) > 0 || slices.Contains(slices.Collect(maps.Values(held)), "") {
				return fmt.Errorf("the leases are %v", held)
			}
			return nil
		}))
		want := bound + rng.IntN(room-bound+1)
		c.until("more is bound", living(func() error {
			if n := books.bound() - before; n < want {
				return fmt.Errorf("%d of %d are", n, want)
			}
			return nil
		}))
		began := time.Now()
		c.must(p.Process.Signal(syscall.SIGCONT))
		select {
		case <-p.ended:
			if p.err == nil {
				t.Error("an instance that lost its lease ended as if it had been asked to")
			}
		case <-time.After(patience):
			t.Fatal("an instance that lost its lease goes on")
		}
		took := time.Since(began)
		c.until("all GPUs are in use", living(func() error {
			if n := books.bound() - before; n < room {
				return fmt.Errorf("%d are", n)
			}
			return nil
		}))
		c.auditNodes()
		t.Logf("round %d: stopped after %d bindings, went on after %d and ended within %v; %d pairs of pods on one GPU so far",
			round, bound, want, took, len(books.twice()))
		// 4. Everything goes, and another instance comes in place of the one that ended.
		c.must(admin.CoreV1().Pods(c.namespace).DeleteCollection(ctx(), metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}, metav1.ListOptions{}))
		c.until("the pods are gone", func() error {
			list, err := admin.CoreV1().Pods(c.namespace).List(ctx(), metav1.ListOptions{Limit: 1})
			if err == nil && len(list.Items) > 0 {
				err = errors.New("they are not")
			}
			return err
		})
		instances[victim], victim = start(), -1
	}
	for _, p := range instances {
		if !p.hasEnded() {
			p.kill()
		}
	}
}

func inPool(pool string) func(*v1.Node) {
	return func(n *v1.Node) { n.Labels[v1alpha1.PoolLabel] = pool }
}

// holders are who has the leases of shards, by the leases' names.
func (c *cluster) holders() map[string]string {
	c.Helper()
	list, err := admin.CoordinationV1().Leases(systemNamespace).List(ctx(), metav1.ListOptions{})
	c.must(err)
	out := map[string]string{}
	for _, l := range list.Items {
		if l.Name == "muster" || strings.HasPrefix(l.Name, "muster-shard-") {
			out[l.Name] = ptr.Deref(l.Spec.HolderIdentity, "")
		}
	}
	return out
}

var identityLogged = regexp.MustCompile(` identity=(\S+)`)

// holds counts the leases that a process holds.
func (p *process) holds(held map[string]string) int {
	found := identityLogged.FindStringSubmatch(p.said.String())
	n := 0
	for _, h := range held {
		if found != nil && h == found[1] {
			n++
		}
	}
	return n
}

// books is who has which GPU, as the API says it, change by change. It shares
// nothing with the scheduler.
type books struct {
	mu    sync.Mutex
	on    map[types.UID]*v1.Pod // those that have a node
	count int                   // of the pods that ever had
	pairs map[[2]string]bool    // of pods that had a GPU at the same time
}

// books keeps books of the namespace's pods from now on.
func (c *cluster) books() *books {
	c.Helper()
	b := &books{on: map[types.UID]*v1.Pod{}, pairs: map[[2]string]bool{}}
	list, err := admin.CoreV1().Pods(c.namespace).List(ctx(), metav1.ListOptions{})
	c.must(err)
	c.follow("", list.ResourceVersion, b.saw)
	return b
}

func (b *books) saw(p *v1.Pod, gone bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if gone || p.Spec.NodeName == "" || p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
		delete(b.on, p.UID)
		return
	}
	if b.on[p.UID] == nil {
		b.count++
	}
	b.on[p.UID] = p
	mine := strings.Split(p.Annotations[v1alpha1.GPUsAnnotation], ",")
	for _, o := range b.on {
		if o.UID == p.UID || o.Spec.NodeName != p.Spec.NodeName {
			continue
		}
		for _, d := range strings.Split(o.Annotations[v1alpha1.GPUsAnnotation], ",") {
			if slices.Contains(mine, d) {
				pair := []string{o.Name, p.Name}
				slices.Sort(pair)
				b.pairs[[2]string(pair)] = true
			}
		}
	}
}

// bound counts the pods that ever had a node.
func (b *books) bound() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count
}

// twice is the pairs of pods that had a GPU at the same time.
func (b *books) twice() [][2]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.SortedFunc(maps.Keys(b.pairs), func(x, y [2]string) int { return slices.Compare(x[:], y[:]) })
}
