package tables

import (
	"reflect"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/lease"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/queues"
	"github.com/muster-sched/muster/kube/storage"
	"github.com/muster-sched/muster/kube/translate"
)

// member is a pod of a role that could be placed.
func member(name, role string) *Pod {
	o := &objects.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Ours: true}
	o.Membership.Role = role
	return &Pod{Object: o, Slot: -1, Volumes: &storage.Needs{}}
}

func groupOf(pods ...*Pod) *Group {
	g := &Group{Pods: map[types.UID]*Pod{}, Loose: map[types.UID]*Pod{}}
	for _, p := range pods {
		p.Group, g.Pods[p.Object.UID] = g, p
	}
	return g
}

// Pods of a group are in the order of their numbers: neighbours in a job become neighbours in
// the cluster.
func TestInOrder(t *testing.T) {
	g := groupOf(member("w-10", ""), member("w-2", ""), member("w-1", ""))
	var got []string
	for _, p := range InOrder(g.Pods, (*Pod).Ready) {
		got = append(got, p.Object.Name)
	}
	if want := []string{"w-1", "w-2", "w-10"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A gang needs the minimum of each role, and its own beyond that from the first.
func TestRolesOfAGroup(t *testing.T) {
	g := groupOf(member("l", "leader"), member("w-1", "worker"), member("w-2", "worker"))
	all := func(*Pod) bool { return true }
	g.Needs(3, map[string]int{"leader": 1, "worker": 3})
	if g.Min != 4 || !g.Gang() {
		t.Errorf("it is a gang of %d", g.Min)
	}
	if got, want := g.Few(all), "2 of the 3 pods of worker that the gang needs exist and are ready"; got != want {
		t.Errorf("it lacks %q, want %q", got, want)
	}
	leader, worker, more := &Task{Name: "leader", role: "leader"}, &Task{Name: "worker", role: "worker"}, &Task{Name: "worker-2", role: "worker"}
	g.Tasks = []*Task{leader, worker, more}
	pods := map[*Task][]*Pod{leader: make([]*Pod, 2), worker: make([]*Pod, 2), more: make([]*Pod, 2)}
	g.Min = 5
	if got, want := g.Spread(pods), map[*Task]int{leader: 2, worker: 2, more: 1}; !reflect.DeepEqual(got, want) {
		t.Errorf("it starts with %v, want %v", got, want)
	}
}

// What a job was admitted with comes back whole, and nothing else of it.
func TestAdmitAndApply(t *testing.T) {
	known := New(core.Policy{}, nil)
	known.Queues.Told["q"] = core.Queue{Name: "q"}
	for _, want := range []core.Job{
		{Queue: "q"},
		{Queue: "q", Class: core.LP, Priority: 3, MinRuntime: 4, Checkpoint: 5},
		{Queue: "q", NeverPreempts: true},
		{Queue: "q", NotPreemptible: true},
		{Queue: "q", Locked: true},
	} {
		for _, got := range []core.Job{
			{},
			{Queue: "other", Class: core.LP, Priority: 9, NeverPreempts: true, NotPreemptible: true, Locked: true, MinRuntime: 9, Checkpoint: 9},
		} {
			want.Name, got.Name = "j", "j"
			Admit(&want).Apply(&known, &got)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		}
	}
}

// A pod that is evicted for others gets no more than a while to end, whatever it asks
// for, and never more than that; on a drained node it gets what it asks for.
func TestGraceOfEvictions(t *testing.T) {
	for _, c := range []struct {
		asks   *int64
		reason string
		want   *int64
		policy core.Time
	}{
		{new(int64(3153600000)), core.QuotaReclaim.String(), new(int64(600)), 0},
		{new(int64(601)), core.PriorityPreemption.String(), new(int64(600)), 0},
		{new(int64(601)), "Overcommitted", new(int64(600)), 0},
		{new(int64(600)), core.QuotaReclaim.String(), nil, 0},
		{new(int64(0)), core.QuotaReclaim.String(), nil, 0},
		{nil, core.QuotaReclaim.String(), nil, 0},
		{nil, core.FairShareReclaim.String(), nil, 0},
		{new(int64(3153600000)), act.Drained, nil, 0},
		{new(int64(90)), core.PriorityPreemption.String(), new(int64(60)), 60 * core.Second},
		{new(int64(30)), core.PriorityPreemption.String(), nil, 60 * core.Second},
		{new(int64(5)), core.StandbyReturns.String(), new(int64(2)), 1500 * core.Second / 1000},
		{new(int64(90)), act.Drained, nil, 60 * core.Second},
	} {
		known := New(core.Policy{Name: "p", Preempt: core.Preempt{EvictGrace: c.policy, BudgetTimeout: 7 * core.Second}}, nil)
		p := &v1.Pod{Spec: v1.PodSpec{SchedulerName: v1alpha1.SchedulerName, TerminationGracePeriodSeconds: c.asks}}
		e := (&Eviction{Of: &Pod{Object: objects.TrimPod(p)}, Reason: c.reason}).Value(known.Notice())
		if got := e.Grace; (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%+v: it gets %v", c, got)
		}
		reclaims := c.reason == core.QuotaReclaim.String() || c.reason == core.FairShareReclaim.String()
		if (e.BudgetTimeout == 7*time.Second) != reclaims {
			t.Errorf("%+v: it waits %v for budgets", c, e.BudgetTimeout)
		}
		if owed := reclaims || c.reason == core.StandbyReturns.String(); e.DespiteBudgets != owed || e.Counted {
			t.Errorf("%+v: %+v", c, e)
		}
	}
	if e := (&Eviction{Of: &Pod{Object: &objects.Pod{Counts: true}}, Reason: "x", Shard: 3}).Value(Notice{Grace: 600}); !e.Counted || e.Shard != 3 {
		t.Errorf("a Job's pod: %+v", e)
	}
}

// Pods that restart elsewhere, leave a drained node or make room for others save themselves first, as far as they can: those of a gang only
// together. Where others wait for them, they have as long as the policy gives them.
func TestSaveBeforeLeaving(t *testing.T) {
	single, gang := &Group{}, &Group{}
	gang.Min = 2
	if single.Gang() || !gang.Gang() {
		t.Fatal("the groups are not what they should be")
	}
	for _, x := range []struct {
		name        string
		pod         Pod
		reason      string
		group       *Group
		alone, with time.Duration
		notice      time.Duration
	}{
		{"restarts", Pod{Returns: true}, core.Defragmentation.String(), single, time.Minute, time.Minute, 0},
		{"of a drained node", Pod{}, act.Drained, single, time.Minute, time.Minute, 0},
		{"of a gang", Pod{Returns: true}, act.Moving, gang, 0, time.Minute, 0},
		{"makes room", Pod{}, core.PriorityPreemption.String(), single, time.Minute, time.Minute, 600 * time.Second},
		{"of a gang that makes room", Pod{}, core.FairShareReclaim.String(), gang, 0, time.Minute, 600 * time.Second},
		{"on lent GPUs", Pod{}, core.StandbyReturns.String(), single, time.Minute, time.Minute, 600 * time.Second},
		{"restarts to make room", Pod{Returns: true}, core.Consolidation.String(), single, time.Minute, time.Minute, 0},
		{"of a gang that lost a pod", Pod{}, core.MemberLost.String(), gang, 0, 0, 0},
		{"is paused", Pod{Pause: &Pause{}}, act.Drained, single, 0, 0, 0},
	} {
		p := x.pod
		p.Object, p.Group, p.Target = &objects.Pod{CheckpointWithin: time.Minute, Owner: &metav1.OwnerReference{}, Grace: 30}, x.group, "n"
		e := Eviction{Of: &p, Reason: x.reason}
		n := Notice{Grace: 600}
		check := func(how string, got act.Evict, within time.Duration) {
			t.Helper()
			want := act.Evict{SaveWithin: within}
			if within > 0 {
				want.Node, want.Asks, want.Notice = "n", 30, x.notice
			}
			if got.SaveWithin != want.SaveWithin || got.Node != want.Node || got.Asks != want.Asks || got.Notice != want.Notice || got.Grace != nil {
				t.Errorf("%s, %s: %+v; expected %+v", x.name, how, got, want)
			}
		}
		check("alone", e.Value(n), x.alone)
		check("with its job", (&Suspension{Group: x.group, Evict: []Eviction{e}}).Value(n).Pods[0], x.with)
		check("with its gang", (&Acts{Together: [][]Eviction{{e}}}).Values(n).Together[0][0], x.with)
	}
}

// What an eviction of a job costs is what its pods say, if all of them do, agents are there, and the policy gives them that much time.
func TestSaveWithin(t *testing.T) {
	for _, x := range []struct {
		name   string
		within []time.Duration
		min    int
		agents bool
		want   core.Time
	}{
		{"all pods", []time.Duration{time.Minute, 2 * time.Minute}, 0, true, 120 * core.Second},
		{"a gang", []time.Duration{time.Minute, 2 * time.Minute}, 2, true, 120 * core.Second},
		{"one does not say it", []time.Duration{time.Minute, 0}, 0, true, 0},
		{"no agents", []time.Duration{time.Minute}, 0, false, 0},
		{"longer than the policy allows", []time.Duration{11 * time.Minute}, 0, true, 0},
		{"a gang that can lose a pod", []time.Duration{time.Minute, time.Minute, time.Minute}, 2, true, 0},
	} {
		tables := New(core.Policy{}, nil)
		tables.Agents = x.agents
		g := &Group{Pods: map[types.UID]*Pod{}}
		g.Min = x.min
		for i, d := range x.within {
			uid := types.UID(strconv.Itoa(i))
			g.Pods[uid] = &Pod{Object: &objects.Pod{CheckpointWithin: d}}
		}
		if got := tables.SaveWithin(g); got != x.want {
			t.Errorf("%s: %v; expected %v", x.name, got, x.want)
		}
	}
}

// Of pods that name the same device, the node has no room for the last ones alone: who names a
// device that is another's may sit on one that is free.
func TestOverflow(t *testing.T) {
	var list []*Pod
	for i, gpus := range [][]int{{0}, {0}, {1, 2}, {0}} {
		p := member("p"+strconv.Itoa(i), "")
		p.Object.GPUs, p.Object.Request.GPU = gpus, core.Milli(len(gpus))*core.WholeGPU
		list = append(list, p)
	}
	over := overflow(list, 4)
	if len(over) != 1 || !over[list[3]] {
		t.Errorf("%d pods are over, the last among them: %t", len(over), over[list[3]])
	}
	if over := overflow(list, 5); len(over) != 0 {
		t.Errorf("%d pods are over on a node with room for all", len(over))
	}
}

func TestShardTable(t *testing.T) {
	all, err := lease.ParseShards([]string{"a,b", "c", "*"})
	if err != nil {
		t.Fatal(err)
	}
	s := NewShardTable(all)
	if s.Of("a") != s.Of("b") || s.Of("a") == s.Of("c") || s.Of("other") != s.Rest || !s.Several() {
		t.Errorf("a, b, c and another are in %d, %d, %d, %d; the rest is %d", s.Of("a"), s.Of("b"), s.Of("c"), s.Of("other"), s.Rest)
	}
	s.Held[s.Of("c")] = true
	if got, want := s.Within(), "; only nodes of these shards count: c"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	one := oneShard()
	if one.Several() || one.Within() != "" || one.Of("a") != 0 {
		t.Errorf("one shard is %+v", one)
	}
}

// A queue in a cycle is deeper than there are queues.
func TestDepth(t *testing.T) {
	q := Queues{Index: queues.New()}
	for name, parent := range map[string]string{"top": "", "mid": "top", "low": "mid", "x": "y", "y": "x"} {
		q.Objects[name] = &v1alpha1.Queue{Spec: v1alpha1.QueueSpec{Parent: parent}}
	}
	for name, want := range map[string]int{"top": 0, "mid": 1, "low": 2, "none": 0} {
		if got := q.Depth(name); got != want {
			t.Errorf("%s is %d deep, want %d", name, got, want)
		}
	}
	if q.Depth("x") <= len(q.Objects) {
		t.Error("a cycle is not seen")
	}
}

// What a pod was bound with counts while it runs; its progress changes.
func TestAfter(t *testing.T) {
	was := &objects.Pod{Ours: true, Node: "n", Said: "queue=a", GPUs: []int{1}}
	was.Attributes.Queue, was.Membership = "a", translate.Membership{Min: 2}
	p := &Pod{Object: was, State: PodBound}
	now := *was
	now.Said, now.GPUs, now.Attributes.Queue, now.Membership, now.Attributes.Estimate = "queue=b", []int{2}, "b", translate.Membership{}, 5
	o := p.After(&now)
	if o.Said != "queue=a" || o.Attributes.Queue != "a" || o.GPUs[0] != 1 || o.Membership.Min != 2 {
		t.Errorf("it was edited to %+v", o)
	}
	if o.Attributes.Estimate != 5 {
		t.Error("its estimate is as before")
	}
}
