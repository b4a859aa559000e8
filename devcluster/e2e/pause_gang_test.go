package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/agent"
	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/devcluster/fleet"
	"github.com/muster-sched/muster/kube/tables"
)

// processes has been looking at the processes of pods, as their agents say: a phase each, the last one that was seen.
type processes struct {
	*cluster
	client *agent.Client
	stop   chan struct{}
	ended  sync.WaitGroup
	mu     sync.Mutex
	last   map[types.UID]agentpb.Phase
}

// observe looks at the processes of all pods until the test ends.
func (c *cluster) observe() *processes {
	c.Helper()
	in := func(name string) string { return filepath.Join(agents, name) }
	at, err := os.ReadFile(in("address"))
	c.must(err)
	client, err := agent.Dial(string(at), "muster-agent", agent.TLS{Cert: in("client.crt"), Key: in("client.key"), CA: in("ca.crt")})
	c.must(err)
	o := &processes{cluster: c, client: client, stop: make(chan struct{}), last: map[types.UID]agentpb.Phase{}}
	o.ended.Go(func() {
		for {
			o.look()
			select {
			case <-o.stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	c.Cleanup(func() {
		close(o.stop)
		o.ended.Wait()
		client.Close()
	})
	return o
}

func (o *processes) look() {
	s, err := o.client.Status(ctx(), &agentpb.StatusRequest{})
	if err != nil {
		o.Error(err)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range s.Processes {
		o.last[types.UID(p.Pod)] = p.Phase
	}
}

// are waits until the processes of all these pods are in a phase.
func (o *processes) are(phase agentpb.Phase, pods ...*v1.Pod) {
	o.Helper()
	o.until(fmt.Sprintf("the processes are %v", phase), func() error {
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, p := range pods {
			if o.last[p.UID] != phase {
				return fmt.Errorf("that of %s is %v", p.Name, o.last[p.UID])
			}
		}
		return nil
	})
}

// were says that the processes of pods that are gone were in a phase when they were seen last.
func (o *processes) were(phase agentpb.Phase, pods ...*v1.Pod) {
	o.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range pods {
		if o.last[p.UID] != phase {
			o.Errorf("when the pods of the gang left, the process of %s was %v", p.Name, maps.Clone(o.last))
		}
	}
}

// lowGang has a gang run that can be paused, on two nodes; the last of its pods has an option more.
func (c *cluster) lowGang(last func(*v1.Pod)) (pods []*v1.Pod) {
	c.Helper()
	c.agentNode("n-0")
	c.agentNode("n-1")
	c.schedule(pausing)
	c.group("low", 2)
	for i, more := range []func(*v1.Pod){func(*v1.Pod) {}, last} {
		name := fmt.Sprintf("low-%d", i)
		c.create(pod(name, uncounted(8), needs("120", "200Gi"), pausable, ofGroup("low"), more))
	}
	c.bound("low-0", "low-1")
	c.phase(v1.PodRunning, "low-0", "low-1")
	return []*v1.Pod{c.get("low-0"), c.get("low-1")}
}

// gangIs waits until all pods of the gang have a reason in their condition.
func (c *cluster) gangIs(reason string) {
	c.Helper()
	c.pauseIs("low-0", reason)
	c.pauseIs("low-1", reason)
}

// A gang whose pods are on several nodes is paused for a pod that needs one of them, as a whole, and goes on as a whole.
func TestPauseGang(t *testing.T) {
	c := begin(t)
	high := c.priority("urgent", 1000)
	low := c.lowGang(func(p *v1.Pod) { p.Annotations[fleet.PauseTakes] = "300ms" })
	o := c.observe()
	c.create(pod("high", uncounted(8), needs("100", "200Gi"), high))
	c.bound("high")
	c.pauseIs("low-0", v1alpha1.PausedPaused, "others may use its GPUs", "for "+c.namespace+"/pod/high")
	c.pauseIs("low-1", v1alpha1.PausedPaused, "others may use its GPUs", "for "+c.namespace+"/pod/high")
	o.are(agentpb.Phase_PHASE_SAVED, low...)
	for _, p := range low {
		if got := c.requests(p.Name); got != "0 360Gi" {
			t.Errorf("while it is paused, %s requests %s", p.Name, got)
		}
	}
	// The node on which high is not has GPUs for others.
	c.create(pod("beside", uncounted(8), needs("100", "200Gi"), high))
	c.bound("beside")

	c.delete("high")
	c.pauseIs("low-0", v1alpha1.PausedPaused) // it waits for both
	c.delete("beside")
	c.gangIs(v1alpha1.PausedResumed)
	o.are(agentpb.Phase_PHASE_RUNNING, low...)
	c.stay("low-0", "low-1")
	for _, p := range low {
		now := c.get(p.Name)
		if got := c.requests(p.Name); got != "120 200Gi" || now.UID != p.UID || now.Spec.NodeName != p.Spec.NodeName {
			t.Errorf("when it goes on, %s requests %s on %s", p.Name, got, now.Spec.NodeName)
		}
	}
	// A gang of which one pod cannot be paused is told so.
	c.group("odd", 2)
	c.create(pod("odd-0", uncounted(1), needs("1", "1Gi"), pausable, ofGroup("odd")), pod("odd-1", uncounted(1), needs("1", "1Gi"), ofGroup("odd")))
	c.toldOf("odd-0", tables.NotPausable)
}

// What goes wrong at one node is made good, or ends the pause of the whole gang: whose pods are evicted then, and none of them was paused
// alone.
func TestPauseGangFails(t *testing.T) {
	const paused, evicted = true, false
	for _, x := range []struct {
		fails string
		want  bool
		says  string // with the retries that make sense
	}{
		{"Gate=Late*1", paused, ""},
		{"Gate=lost*3", paused, ""},
		{"Save=Late*2", paused, ""},
		{"Save=unanswered*2", paused, ""},
		{"Keep=lost*2", paused, ""},
		{"Keep=Open*1", paused, ""},
		{"Restore=Failed*2", paused, ""},
		{"Restore=unanswered*1", paused, ""},
		{"Release=lost*2", paused, ""},
		{"Gate=Late", evicted, "cannot be paused (3 tries; all processes go on): member"},
		{"Save=Failed", evicted, "cannot be paused (1 tries; all processes go on): member"},
		{"Keep=Failed", evicted, "cannot be paused (1 tries; all processes go on): member"},
	} {
		t.Run(x.fails, func(t *testing.T) {
			c := begin(t)
			high := c.priority("urgent", 1000)
			low := c.lowGang(note(fleet.GoalFails, x.fails))
			o := c.observe()
			c.create(pod("high", uncounted(8), needs("100", "200Gi"), high))
			c.bound("high")
			if x.want == paused {
				c.gangIs(v1alpha1.PausedPaused)
				o.are(agentpb.Phase_PHASE_SAVED, low...)
				c.delete("high")
				c.gangIs(v1alpha1.PausedResumed)
				o.are(agentpb.Phase_PHASE_RUNNING, low...)
				c.stay("low-0", "low-1")
				return
			}
			c.gone(low...)
			o.were(agentpb.Phase_PHASE_RUNNING, low...)
			c.until("the scheduler says why", func() error { return c.scheduler.log.has(x.says) })
			c.must(c.scheduler.log.has("the agent of node " + low[1].Spec.NodeName + ": as its pod says"))
		})
	}
}

// Whenever a scheduler dies, the next one has the whole gang paused, or the whole gang go on.
func TestPauseGangRestarted(t *testing.T) {
	c := begin(t)
	high := c.priority("urgent", 1000)
	low := c.lowGang(func(*v1.Pod) {})
	o := c.observe()
	urgent := func(name string) { c.create(pod(name, uncounted(8), needs("100", "200Gi"), high)) }

	// 1. While it saves: one of two is saved, under a lease.
	c.annotate("low-1", fmt.Sprintf("%q:%q", fleet.PauseTakes, "1h"))
	urgent("a")
	o.are(agentpb.Phase_PHASE_SAVED, low[0])
	c.scheduler.stop()
	c.delete("a")
	c.schedule(pausing)
	c.gangIs(v1alpha1.PausedResumed)
	o.are(agentpb.Phase_PHASE_RUNNING, low...)

	// 2. While the leases end: all are saved, and one does not know yet that it is kept.
	c.annotate("low-1", fmt.Sprintf("%q:null,%q:%q", fleet.PauseTakes, fleet.GoalFails, "Keep=lost"))
	urgent("b")
	c.until("it is decided that all are kept", func() error {
		for _, name := range []string{"low-0", "low-1"} {
			if k := condition(c.get(name), v1alpha1.PausedCondition); saysAll(k.Message, []string{`"goal":"Keep"`}) {
				return nil
			}
		}
		return fmt.Errorf("it is not")
	})
	o.are(agentpb.Phase_PHASE_SAVED, low...)
	c.scheduler.stop()
	c.delete("b")
	c.schedule(pausing)
	c.gangIs(v1alpha1.PausedResumed)
	o.are(agentpb.Phase_PHASE_RUNNING, low...)

	// 3. While it is paused.
	c.annotate("low-1", fmt.Sprintf("%q:%q", fleet.GoalFails, "Restore=lost"))
	urgent("d")
	c.gangIs(v1alpha1.PausedPaused)
	c.bound("d")
	c.scheduler.stop()
	c.schedule(pausing)
	c.stay("low-0", "low-1", "d")
	c.gangIs(v1alpha1.PausedPaused)
	o.are(agentpb.Phase_PHASE_SAVED, low...)

	// 4. While it goes on: one of two is restored, behind its gate.
	c.delete("d")
	o.are(agentpb.Phase_PHASE_GATED, low[0])
	c.scheduler.stop()
	c.annotate("low-1", fmt.Sprintf("%q:null", fleet.GoalFails))
	c.schedule(pausing)
	c.gangIs(v1alpha1.PausedResumed)
	o.are(agentpb.Phase_PHASE_RUNNING, low...)
	c.stay("low-0", "low-1")
}

// A gang that a scheduler was about to pause goes on by itself if none comes back.
func TestPauseGangLease(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for leases of half a minute")
	}
	c := begin(t)
	high := c.priority("urgent", 1000)
	low := c.lowGang(note(fleet.PauseTakes, "1h"))
	o := c.observe()
	c.create(pod("high", uncounted(8), needs("100", "200Gi"), high))
	o.are(agentpb.Phase_PHASE_SAVED, low[0])
	c.scheduler.stop()
	o.are(agentpb.Phase_PHASE_RUNNING, low...)
}

// If the pod that leads a gang is deleted while the gang is paused, the others leave, and who has their GPUs runs on.
func TestPausedGangLosesPod(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("scheduler restarted=%v", restarted), func(t *testing.T) {
			c := begin(t)
			high := c.priority("urgent", 1000)
			low := c.lowGang(func(*v1.Pod) {})
			c.create(pod("high", uncounted(8), needs("100", "200Gi"), high), pod("high2", uncounted(8), needs("100", "200Gi"), high))
			c.bound("high", "high2")
			c.gangIs(v1alpha1.PausedPaused)
			if restarted {
				c.scheduler.stop()
			}
			c.delete("low-0")
			c.gone(low[0])
			if restarted {
				c.schedule(pausing)
			}
			c.gone(low[1])
			c.stay("high", "high2")
		})
	}
}

// Schedulers are killed (kill -9) at any moment at which they pause a gang, or let it go on. The next one makes it whole.
func TestPauseGangKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the leases of schedulers that were killed")
	}
	c := begin(t)
	high := c.priority("urgent", 1000)
	low := c.lowGang(func(p *v1.Pod) {
		p.Annotations[fleet.PauseTakes], p.Annotations[fleet.ResumeTakes] = "100ms", "100ms"
	})
	c.scheduler.stop()
	o := c.observe()
	running := &instances{cluster: c, counts: map[string]int{}}
	n := 0
	var last *haunted
	c.Cleanup(func() {
		if c.Failed() {
			running.signal(last, syscall.SIGKILL)
			c.Logf("the last scheduler said:\n%s", &last.said)
		}
	})
	next := func() *haunted {
		n++
		p, err := running.start(&crashing{
			Host: identity.Host, Token: identity.BearerToken, CA: identity.CAData, Identity: fmt.Sprintf("killed-%d", n), Agents: agents,
		})
		c.must(err)
		last = p
		c.until("the next scheduler decides", func() error {
			if !p.decides() {
				return fmt.Errorf("it says %s", &p.said)
			}
			return nil
		})
		return p
	}
	kill := func(p *haunted) {
		running.signal(p, syscall.SIGKILL)
		<-p.ended
	}
	rng := rand.New(rand.NewPCG(1, 2))
	said := map[string]int{} // where it was when the scheduler died
	for round := range 6 {
		name := fmt.Sprintf("high-%d", round)
		for _, x := range []struct {
			begin  func()
			reason string
			phase  agentpb.Phase
		}{
			{func() { c.create(pod(name, uncounted(8), needs("100", "200Gi"), high)) }, v1alpha1.PausedPaused, agentpb.Phase_PHASE_SAVED},
			{func() { c.delete(name) }, v1alpha1.PausedResumed, agentpb.Phase_PHASE_RUNNING},
		} {
			p := next()
			x.begin()
			time.Sleep(time.Duration(rng.IntN(900)) * time.Millisecond) // any moment will do
			kill(p)
			for _, p := range low {
				if k := condition(c.get(p.Name), v1alpha1.PausedCondition); k != nil {
					said[k.Reason]++
				}
			}
			p = next()
			c.gangIs(x.reason)
			o.are(x.phase, low...)
			c.stay("low-0", "low-1")
			kill(p)
		}
	}
	t.Logf("when schedulers died, the pods were %v", said)
	for _, p := range low {
		if now := c.get(p.Name); now.UID != p.UID {
			t.Errorf("%s is another pod", p.Name)
		}
	}
}
