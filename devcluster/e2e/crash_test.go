package e2e

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/devcluster/audit"
)

// The crash test: schedulers in processes of their own, two with leader election and one
// with shards, are killed and stopped at random instants, while three of ten requests
// fail, before or after they took effect, watches break off and clocks jump. They share
// a cluster that is nearly full, with quotas, priorities, budgets, Jobs, and a gang that
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
	began := time.Now()
	schedulers := c.launch(seed,
		instance{name: "a"}, instance{name: "b"}, instance{name: "c", shards: []string{"east", "*"}})
	defer schedulers.stop()
	rounds := 0
	for ; rounds == 0 || time.Since(began) < length; rounds++ {
		if rounds > 0 {
			schedulers.weather(true)
		}
		l.storm(min(25*time.Second, length/2))
		schedulers.weather(false)
		l.settle()
		c.auditNodes()
		if j.report(t); t.Failed() {
			break
		}
	}
	for _, fault := range schedulers.stop() {
		t.Error(fault)
	}
	t.Logf("%d rounds in %v: %v; %d bindings, %d pods refused", rounds, time.Since(began).Round(time.Second), schedulers.counts, j.bound, j.refused)
	happens := []string{"killed", "stopped (signal)", "took a lease", "request: lost", "request: watch"}
	if length >= 5*time.Minute { // in a minute, few writes meet with each
		for _, what := range mishaps {
			happens = append(happens, "request: "+what)
		}
	}
	for _, what := range happens {
		if schedulers.counts[what] == 0 {
			t.Errorf("%q never happened: %v", what, schedulers.counts)
		}
	}
}

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
}

// journal keeps a journal of the namespace's pods from now on.
func (c *cluster) journal(limits []audit.Limit) *journal {
	c.Helper()
	j := &journal{nodes: map[string]*v1.Node{}, limits: limits, on: map[string]map[types.UID]*v1.Pod{}, places: map[types.UID]string{}}
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
		j.refused++
		j.find("%s", refused)
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
	for _, problem := range audit.Node(j.nodes[node], slices.Collect(maps.Values(j.on[node]))) {
		j.find("when pod %s was bound: %s", p.Name, problem)
	}
	var all []*v1.Pod
	for _, on := range j.on {
		all = slices.AppendSeq(all, maps.Values(on))
	}
	for _, problem := range audit.Quotas(j.limits, all) {
		j.find("when pod %s was bound: %s", p.Name, problem)
	}
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
	return errors.New(fmt.Sprint(problems[:min(5, len(problems))], " of ", len(problems)))
}

// one returns one of a list.
func one[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }
