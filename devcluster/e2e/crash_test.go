package e2e

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/devcluster/audit"
)

// The crash test: schedulers in processes of their own, with leader election, one of
// them with shards, are killed and stopped at random instants, while three of ten requests
// fail, before or after they took effect, watches break off and clocks jump; nodes and GPUs
// fail and work again. They share
// a cluster that is nearly full, with quotas of GPUs, CPUs and memory, priorities, budgets, Jobs, and a gang that
// needs every GPU of its pool. All along, what each change of a pod leaves is audited; when a
// storm is over, all that should run has to, and nothing may be left behind.
//
// MUSTER_CRASH is how long it takes, such as 10m; a minute without it, and ten with
// MUSTER_FULL. MUSTER_CRASH_SEED repeats a seed, as far as the machine does: it decides what
// is done, not when the kernel lets it happen. MUSTER_CRASH_LOGS is a folder for the logs of
// all processes.
func TestCrash(t *testing.T) {
	length := time.Minute
	if os.Getenv("MUSTER_FULL") != "" {
		length = 10 * time.Minute
	}
	if text := os.Getenv("MUSTER_CRASH"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("MUSTER_CRASH: expected a duration; found %q", text)
		}
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("MUSTER_CRASH_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("MUSTER_CRASH_SEED: expected a number; found %q", text)
		}
	}
	t.Logf("MUSTER_CRASH_SEED=%d", seed)

	c := begin(t)
	c.forgetLeases()
	l := c.crashLoad(seed)
	j := c.journal(l.limits)
	l.nodeAway = j.nodeAway
	began := time.Now()
	var list []instance
	for i := range crashInstances {
		x := instance{name: string(rune('a' + i))}
		if i == 0 { // one alone: it holds both shards, so that no quota is of two instances
			x.shards = []string{"east", "*"}
		}
		list = append(list, x)
	}
	schedulers := c.launch(seed, list...)
	defer schedulers.stop()
	storm := min(25*time.Second, length/2)
	if length >= 5*time.Minute { // less of it passes between storms
		storm = 45 * time.Second
	}
	rounds := 0
	for ; rounds == 0 || time.Since(began) < length; rounds++ {
		if rounds > 0 {
			j.storm()
			l.startOver()
			schedulers.weather(true)
		}
		l.storm(storm)
		schedulers.weather(false)
		j.calm(l)
		l.settle()
		c.auditNodes()
		j.auditExcesses(schedulers.ends())
		if j.report(t); t.Failed() {
			break
		}
	}
	for _, fault := range schedulers.stop() {
		t.Error(fault)
	}
	took := time.Since(began)
	maps.Copy(schedulers.counts, l.counts)
	t.Logf("%d rounds in %v, %.0f kills a minute: %v; %d bindings, %d pods refused", rounds, took.Round(time.Second),
		float64(schedulers.counts["killed"])/took.Minutes(), schedulers.counts, j.bound, j.refused)
	happens := []string{"killed", "stopped (signal)", "took a lease", "request: lost", "request: watch"}
	if length >= 5*time.Minute { // in a minute, few writes meet with each
		for _, what := range mishaps {
			happens = append(happens, "request: "+what)
		}
		happens = append(happens, "killed while it decides", "node removed", "node not ready", "GPU failed", "condition of a GPU")
	}
	for _, what := range happens {
		if schedulers.counts[what] == 0 {
			t.Errorf("%q never happened: %v", what, schedulers.counts)
		}
	}
}

// crashInstances are the schedulers that run at a time.
const crashInstances = 10

// journal audits what each change of a pod leaves.
type journal struct {
	nodes  map[string]*v1.Node
	limits []audit.Limit

	mu      sync.Mutex
	on      map[string]map[types.UID]*v1.Pod // those that hold room, by node
	places  map[types.UID]string
	bound   int
	refused int
	found   []string
	// old are the pods that were there when the last storm was over, nil in a storm. What a
	// scheduler decided that did not know of a fault is excused for them alone.
	old     map[types.UID]bool
	shunned map[string]bool // nodes that take no GPUs from then on
	// away are the nodes that went away in the last storm, whether they are back or not.
	away map[string]bool
	// excesses are the times when a pod was bound and a Shared queue held more than it may.
	excesses []excess
}

// excess is that a Shared queue held more than its quota when a pod was bound. Evicted pods give theirs back at once, and hold what
// they have until they have left: others of the queue may start meanwhile. So one of those that held it has to leave soon, unless
// the scheduler ended before it could say so.
type excess struct {
	at      time.Time
	problem string
	pods    map[types.UID]bool
	leaves  bool // one of them does
}

// The times in which a pod leaves that was evicted, while three of ten requests fail, and in which all that a scheduler decided is sent.
const leavesWithin, sentWithin = 15 * time.Second, 5 * time.Second

// journal keeps a journal of the namespace's pods from now on.
func (c *cluster) journal(limits []audit.Limit) *journal {
	c.Helper()
	j := &journal{nodes: map[string]*v1.Node{}, limits: limits, on: map[string]map[types.UID]*v1.Pod{}, places: map[types.UID]string{}, away: map[string]bool{}}
	nodes, err := admin.CoreV1().Nodes().List(ctx(), metav1.ListOptions{})
	c.must(err)
	for i := range nodes.Items {
		j.nodes[nodes.Items[i].Name] = &nodes.Items[i]
		j.on[nodes.Items[i].Name] = map[types.UID]*v1.Pod{}
	}
	list, err := admin.CoreV1().Pods(c.namespace).List(ctx(), metav1.ListOptions{})
	c.must(err)
	for i := range list.Items {
		j.saw(&list.Items[i], false)
	}
	c.follow("", list.ResourceVersion, j.saw)
	return j
}

func (j *journal) saw(p *v1.Pod, gone bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	was, node := j.places[p.UID], p.Spec.NodeName
	if node == "" {
		return
	}
	if was != "" && was != node {
		j.find("pod %s was on %s and is on %s", p.Name, was, node)
	}
	if refused := audit.Refused(p); refused != "" && j.on[node][p.UID] != nil {
		if j.refused++; !j.excused(p) {
			j.find("%s", refused)
		}
	}
	if p.DeletionTimestamp != nil && j.on[node][p.UID] != nil {
		for i := range j.excesses {
			x := &j.excesses[i]
			x.leaves = x.leaves || x.pods[p.UID] && time.Since(x.at) < leavesWithin
		}
	}
	if gone || !audit.Holds(p) {
		delete(j.on[node], p.UID)
		if gone {
			delete(j.places, p.UID)
		}
		return
	}
	j.on[node][p.UID], j.places[p.UID] = p, node
	if was != "" {
		return // nothing else is taken
	}
	j.bound++
	if j.old != nil && !j.old[p.UID] && j.shunned[node] && audit.HasGPUs(p) {
		j.find("pod %s has GPUs of node %s, one of which is broken", p.Name, node)
	}
	for _, problem := range audit.Node(j.nodes[node], slices.Collect(maps.Values(j.on[node]))) {
		j.find("when pod %s was bound: %s", p.Name, problem)
	}
	j.auditQuotas(p)
}

// auditQuotas audits what queues hold when a pod was bound.
func (j *journal) auditQuotas(p *v1.Pod) {
	var all []*v1.Pod
	for _, on := range j.on {
		for _, o := range on {
			// A scheduler that starts while a node is gone does not know what its pods hold. When the node is back, it evicts
			// what is too much.
			if !j.away[o.Spec.NodeName] {
				all = append(all, o)
			}
		}
	}
	for i := range j.limits {
		problems := audit.Quotas(j.limits[i:i+1], all)
		switch {
		case len(problems) == 0:
		case j.limits[i].Isolated:
			j.find("when pod %s was bound: %s", p.Name, strings.Join(problems, "; "))
		default:
			x := excess{at: time.Now(), problem: fmt.Sprintf("when pod %s was bound: %s", p.Name, strings.Join(problems, "; ")), pods: map[types.UID]bool{}}
			for _, o := range all {
				if o.Labels[v1alpha1.QueueLabel] == j.limits[i].Queue {
					x.pods[o.UID] = true
					x.leaves = x.leaves || o.DeletionTimestamp != nil
				}
			}
			j.excesses = append(j.excesses, x)
		}
	}
}

// auditExcesses finds those in which no pod left, though the scheduler did not end; ends is when one did that decides.
func (j *journal) auditExcesses(ends []time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, x := range j.excesses {
		ended := slices.ContainsFunc(ends, func(t time.Time) bool { return t.After(x.at) && t.Sub(x.at) < sentWithin })
		if !x.leaves && !ended {
			j.find("%s, and none of them left", x.problem)
		}
	}
	j.excesses = nil
}

// storm is called before a storm: schedulers may not know of faults.
func (j *journal) storm() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.old, j.away = nil, map[string]bool{}
}

// nodeAway is called before a node goes away.
func (j *journal) nodeAway(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.away[name] = true
}

// calm is called when a storm is over, and the processes of it have ended: from now on, the
// schedulers know which GPUs are broken.
func (j *journal) calm(l *crashLoad) {
	l.Helper()
	list, err := admin.CoreV1().Pods(l.namespace).List(ctx(), metav1.ListOptions{})
	l.must(err)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.old, j.shunned = map[types.UID]bool{}, maps.Clone(l.shunned)
	for i := range list.Items {
		j.old[list.Items[i].UID] = true
	}
}

// excused reports whether a node refused a pod because a GPU had failed, of which whoever
// bound the pod did not have to know.
func (j *journal) excused(p *v1.Pod) bool {
	return p.Status.Reason == "OutOfnvidia.com/gpu" && !strings.Contains(p.Status.Message, "capacity: 8") && (j.old == nil || j.old[p.UID])
}

// find takes note of something that is wrong.
func (j *journal) find(format string, args ...any) {
	if len(j.found) < 20 {
		j.found = append(j.found, time.Now().UTC().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

// report fails the test with what was found.
func (j *journal) report(t *testing.T) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, problem := range j.found {
		t.Error(problem)
	}
}

// names of what should run and does not, at most a few.
func few(problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	slices.Sort(problems)
	return errors.New(fmt.Sprint(problems[:min(12, len(problems))], " of ", len(problems)))
}

// one returns one of a list.
func one[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }
