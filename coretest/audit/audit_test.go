package audit

import (
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/quota"
	"github.com/muster-sched/muster/workload"
)

// Two leaf groups of two nodes, and one node of another model that repels.
const nodes = `a0,A100,4,16000,65536,a,s,,,disk=ssd
a1,A100,4,16000,65536,a,s,,,
b0,A100,4,16000,65536,b,s,,,
b1,A100,4,16000,65536,b,s,,,
h0,H800,4,16000,65536,b,s,,,taint:only=llm
`

// Jobs: g is a gang of two pods within a leaf group, e an elastic one of 1 to
// 3, i a service of two pods on two nodes of a leaf group, which is no gang, f takes half a GPU, lp is a spot job, lk locked.
const jobs = `g,w,q,training,HP,50,true,2,4000,4000,1024,A100,0,100,completed,0,false,required=leaf,
e,w,q,training,HP,50,true,1-3,1000,1000,1024,,0,100,completed,0,false,,
i,w,q,inference,HP,50,false,2,1000,1000,1024,,1,100,completed,0,false,required=leaf,apart:node:i;label:i
x,w,q,inference,HP,50,false,1,1000,1000,1024,,1,100,completed,0,false,,apart:leaf:y
y,w,q,inference,HP,50,false,1,1000,1000,1024,,1,100,completed,0,false,,label:y
f,w,q,dev,HP,50,false,1,500,9000,40000,,1,100,completed,0,false,,
lp,w,q,batch,LP,0,false,1,1000,1000,1024,,2,100,completed,0,false,,
lk,w,iso,training,HP,50,false,1,2000,9000,40000,,2,100,completed,0,true,,disk=ssd
h,w,q,training,HP,50,false,1,1000,1000,1024,H800|A100,3,100,completed,0,false,,tolerate:only
`

var queues = []core.Queue{
	{Name: "q", Weight: 1},
	{Name: "org", Weight: 1, Mode: quota.Isolated, Quota: []core.Quota{{Model: "*", Nominal: 2000}}},
	{Name: "iso", Parent: "org", Weight: 1},
}

// good is a run without fault: an eviction and a new start, a lost node that
// comes back, fractions, a migration, jobs that run still and one that waits.
const good = `
1   bind g-0 a0 0,1,2,3
1   bind g-1 a1 0,1,2,3
1   bind e-0 b0 0
2   bind e-1 b0 1
2   bind e-2 b1 0
2   bind f-0 b0 2
3   bind i-0 b0 3
4   bind i-1 b1 3
10  release g-0 preempted i
10  release g-1 preempted i
12  bind g-0 a1 0,1,2,3
12  bind g-1 a0 0,1,2,3
15  release g-0 failed
15  release g-1 failed
20  lost b1
20  release e-2 node_lost
20  release i-1 node_lost
30  back b1
31  bind e-2 b1 0
40  bind i-1 b1 2
50  bind lp-0 a1 0
60  bind lk-0 a0 0,1
70  release lp-0 reclaimed h
70  bind h-0 h0 0
80  release e-0 finished
80  release e-1 finished
80  release e-2 finished
80  end e
90  release f-0 finished
90  end f
`

func TestGoodRun(t *testing.T) {
	r, err := Audit(write(t, nodes, queues, jobs, good))
	must(t, err)
	for _, v := range r.Violations {
		t.Error(v)
	}
	if r.Jobs != 9 || r.Lines != 26 || r.Nodes != 5 {
		t.Errorf("checked %d jobs, %d lines, %d nodes", r.Jobs, r.Lines, r.Nodes)
	}
}

// Each script breaks one invariant, which the audit must name, and no other.
func TestBreaches(t *testing.T) {
	for name, test := range map[string]struct{ script, want string }{
		"a GPU to two pods": {`
			5 bind h-0 a0 0
			5 bind lp-0 a0 0`, Device},
		"a GPU whole and in part": {`
			5 bind h-0 a0 0
			5 bind f-0 a0 0`, Sharing},
		"the CPU of a node twice": {`
			5 bind f-0 a0 0
			5 bind lk-0 a0 1,2`, CPU + " " + Memory},
		"a job gets half of what it asks": {`
			5 bind h-0 a0 0 500`, Request},
		"a model that is not accepted": {`
			5 bind g-0 h0 0,1,2,3
			5 bind g-1 b0 0,1,2,3
			5 release g-0 failed
			5 release g-1 failed`, Model + " " + Affinity},
		"half a gang": {`
			5 bind g-0 a0 0,1,2,3
			6 bind g-1 a1 0,1,2,3`, Gang},
		"half a gang evicted": {`
			5 bind g-0 a0 0,1,2,3
			5 bind g-1 a1 0,1,2,3
			6 release g-0 preempted h`, Gang},
		"a pod is back where it was before its job's": {`
			5 bind lp-0 a0 0
			6 release lp-0 preempted h
			7 bind lp-0 a0 0`, Return},
		"a pod is back where it was after the job has started that it left for": {`
			5 bind lp-0 a0 0
			6 release lp-0 preempted h
			6 bind h-0 a0 1
			6 bind lp-0 a0 0`, ""},
		"a pod is back after a node was lost, for which the plan may be given up": {`
			5 bind lp-0 a0 0
			6 release lp-0 preempted h
			7 lost b0
			7 bind lp-0 a0 0`, ""},
		"a pod is back after a node was lost between the decision and its leaving": {`
			5 bind lp-0 a0 0
			7 lost b0
			9 release lp-0 preempted h 6
			9 bind lp-0 a0 0`, ""},
		"a pod is back, and the node was lost before the decision": {`
			5 bind lp-0 a0 0
			6 lost b0
			9 release lp-0 preempted h 7
			9 bind lp-0 a0 0`, Return},
		"a pod is elsewhere before the job starts that it left for": {`
			5 bind lp-0 a0 0
			6 release lp-0 preempted h
			7 bind lp-0 a0 1`, ""},
		"an elastic gang that starts again with its minimum is no breach": {`
			5 bind e-0 a0 0
			5 bind e-1 a0 1
			6 release e-0 preempted h
			6 release e-1 preempted h
			6 bind e-1 a0 2`, ""},
		"a gang that lost a node takes its grace": {`
			5 bind g-0 a0 0,1,2,3
			5 bind g-1 a1 0,1,2,3
			6 lost a1
			6 release g-1 node_lost
			9 release g-0 node_lost`, ""},
		"a gang that lost a node goes on": {`
			5 bind g-0 a0 0,1,2,3
			5 bind g-1 a1 0,1,2,3
			6 release g-1 node_lost
			9 release g-0 finished`, Gang},
		"a gang that lost a node is patched later": {`
			5 bind g-0 a0 0,1,2,3
			5 bind g-1 a1 0,1,2,3
			6 release g-1 node_lost
			9 bind lp-0 b0 0
			9 release g-0 preempted h
			9 bind g-0 b1 0,1,2,3`, Gang},
		"a failed pod starts again": {`
			5 bind i-0 a0 0
			6 release i-0 failed
			7 bind i-0 a0 0`, ""},
		"two leaf groups": {`
			5 bind g-0 a0 0,1,2,3
			5 bind g-1 b0 0,1,2,3`, Topology},
		"pods that are no gang in two leaf groups": {`
			5 bind i-0 a0 0
			6 bind i-1 b0 0`, Topology},
		"bound twice": {`
			5 bind h-0 a0 0
			6 bind h-0 a0 0`, Pod},
		"released twice": {`
			5 bind h-0 a0 0
			6 release h-0 failed
			7 release h-0 failed`, Pod},
		"bound after it finished": {`
			5 bind i-0 a0 0
			6 release i-0 finished
			7 bind i-0 a0 0`, Pod},
		"a locked job evicted": {`
			5 bind lk-0 a0 0,1
			6 release lk-0 preempted h`, Locked},
		"a locked job moved": {`
			5 bind lk-0 a0 0,1
			6 release lk-0 migrated
			6 bind lk-0 a0 2,3`, Locked},
		"HP for LP": {`
			5 bind h-0 a0 0
			6 release h-0 reclaimed lp`, Class},
		"HP for an HP job that ended meanwhile": {`
			5 bind h-0 a0 0
			5 bind e-0 b0 0
			6 release e-0 finished
			6 end e
			9 release h-0 preempted e`, ""},
		"HP for an LP job that ended meanwhile": {`
			5 bind h-0 a0 0
			5 bind lp-0 a0 1
			6 release lp-0 finished
			6 end lp
			9 release h-0 preempted lp`, Class},
		"HP for a job to come": {`
			5 bind h-0 a0 0
			6 release h-0 preempted z`, Class},
		"HP for nobody": {`
			5 bind h-0 a0 0
			6 release h-0 preempted`, Class},
		"a selector": {`
			5 bind lk-0 a1 0,1`, Affinity},
		"a taint": {`
			5 bind lp-0 h0 0`, Affinity},
		"two pods that must be apart": {`
			5 bind i-0 a0 0
			5 bind i-1 a0 1`, Affinity},
		"a pod in the domain of one that must be apart from it": {`
			5 bind x-0 a0 0
			6 bind y-0 a1 0`, Affinity},
		"a pod on a lost node": {`
			5 lost a0
			6 bind h-0 a0 0`, Node},
		"a pod that survives its node": {`
			5 bind h-0 a0 0
			6 lost a0
			7 bind lp-0 b0 0`, Node},
		"a pod on a cordoned node": {`
			5 cordon a0
			6 bind h-0 a0 0`, Node},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Audit(write(t, nodes, queues, jobs, test.script))
			must(t, err)
			if got := names(r); got != test.want {
				t.Errorf("audit names %q, want %q", got, test.want)
				for _, v := range r.Violations {
					t.Log(v)
				}
			}
		})
	}
}

// Labels and terms are of a role; those of a gang that start together may be near
// each other.
func TestRoles(t *testing.T) {
	const roles = `m,worker,q,training,HP,0,true,2,1000,1000,1024,,0,100,completed,0,false,,label:w;apart:node:w;near:leaf:l
m,launcher,q,training,HP,0,true,1,0,1000,1024,,0,100,completed,0,false,,label:l
n,w,q,dev,HP,0,false,1,1000,1000,1024,,0,100,completed,0,false,,near:node:w
`
	for script, want := range map[string]string{
		`
		5 bind m-0 a0 0
		5 bind m-1 a1 0
		5 bind m-2 a0 -
		6 bind n-0 a1 1`: "",
		`
		5 bind m-0 a0 0
		5 bind m-1 a0 1
		5 bind m-2 a0 -`: Affinity,
		`
		5 bind m-0 a0 0
		5 bind m-1 b0 0
		5 bind m-2 a1 -`: Affinity,
		`
		5 bind m-0 a0 0
		5 bind m-1 a1 0
		5 bind m-2 b0 -`: Affinity,
	} {
		r, err := Audit(write(t, nodes, queues, roles, script))
		must(t, err)
		if got := names(r); got != want {
			t.Errorf("%s\naudit names %q, want %q: %v", script, got, want, r.Violations)
		}
	}
}

// A group of a gang is in one domain of its level, and so is the group around it: pods that are near no others than
// those that came with them to another domain are not near the group.
func TestGroupsWithinGroups(t *testing.T) {
	const groups = `m,one,q,training,HP,0,true,2,1000,1000,1024,,0,100,completed,0,false,,label:one;near:node:one;label:all;near:leaf:all
m,two,q,training,HP,0,true,2,1000,1000,1024,,0,100,completed,0,false,,label:two;near:node:two;label:all;near:leaf:all
n,w,q,dev,HP,0,false,1,1000,1000,1024,,0,100,completed,0,false,,label:all
`
	for name, test := range map[string]struct{ script, want string }{
		"each on a node, both in a leaf": {"5 bind m-0 a0 0\n5 bind m-1 a0 1\n5 bind m-2 a1 0\n5 bind m-3 a1 1", ""},
		"in another order":               {"5 bind m-3 a1 1\n5 bind m-0 a0 0\n5 bind m-2 a1 0\n5 bind m-1 a0 1", ""},
		"the outer group in two leaves":  {"5 bind m-0 a0 0\n5 bind m-1 a0 1\n5 bind m-2 b0 0\n5 bind m-3 b0 1", Affinity},
		"an inner group on two nodes":    {"5 bind m-0 a0 0\n5 bind m-1 a1 0\n5 bind m-2 a1 1\n5 bind m-3 a1 2", Affinity},
		"near one of another job":        {"4 bind n-0 b0 3\n5 bind m-0 b0 0\n5 bind m-1 b0 1\n5 bind m-2 b1 0\n5 bind m-3 b1 1", ""},
		"that job is elsewhere":          {"4 bind n-0 b0 3\n5 bind m-0 a0 0\n5 bind m-1 a0 1\n5 bind m-2 a1 0\n5 bind m-3 a1 1", Affinity},
	} {
		r, err := Audit(write(t, nodes, queues, groups, test.script))
		must(t, err)
		if got := names(r); got != test.want {
			t.Errorf("%s: audit names %q, want %q: %v", name, got, test.want, r.Violations)
		}
	}
}

// The quota of the queue's Isolated parent holds for both jobs together.
func TestIsolatedQuota(t *testing.T) {
	two := `x,w,iso,dev,HP,0,false,1,2000,1000,1024,,0,100,completed,0,false,,
y,w,iso,dev,HP,0,false,1,500,1000,1024,,0,100,completed,0,false,,
`
	r, err := Audit(write(t, nodes, queues, two, "1 bind x-0 a0 0,1\n2 release x-0 failed\n3 bind y-0 a0 0\n"))
	must(t, err)
	if !r.OK() {
		t.Errorf("one after the other: %v", r.Violations)
	}
	r, err = Audit(write(t, nodes, queues, two, "1 bind x-0 a0 0,1\n3 bind y-0 a0 2\n"))
	must(t, err)
	if names(r) != Quota {
		t.Errorf("audit names %v, want %s", r.Violations, Quota)
	}
}

// A queue, and each user there, runs at most as many jobs and GPUs as the queue allows, together with the
// queues below it. A pod of a job that runs is not another job.
func TestRunning(t *testing.T) {
	const jobs = "job,task,queue,kind,class,priority,gang,pods,gpu_milli,cpu_milli,mem_mib,gpu_models,submit_s,duration_s,outcome,checkpoint_s,locked,topology,affinity,user\n" +
		`x,w,team,dev,HP,0,false,2,500,1000,1024,,0,100,completed,0,false,,,ann
y,w,lab,dev,HP,0,false,1,1000,1000,1024,,0,100,completed,0,false,,,bob
z,w,lab,dev,HP,0,false,1,1000,1000,1024,,0,100,completed,0,false,,,ann
`
	team := core.Queue{Name: "team", Parent: "lab", Weight: 1}
	const two, three = "1 bind x-0 a0 0\n1 bind x-1 a0 0\n1 bind y-0 a0 1\n", "2 bind z-0 a0 2\n"
	for _, c := range []struct {
		lab         core.Queue
		script, why string
	}{
		{core.Queue{MaxRunning: core.Running{Jobs: 2}}, two, ""},
		{core.Queue{MaxRunning: core.Running{Jobs: 2}}, two + three, Running},
		{core.Queue{MaxRunning: core.Running{Jobs: 2}}, two + "1 release y-0 failed\n" + three, ""},
		{core.Queue{MaxRunning: core.Running{GPU: 2000}}, two, ""},
		{core.Queue{MaxRunning: core.Running{GPU: 2000}}, two + three, Running},
		{core.Queue{MaxRunningPerUser: core.Running{Jobs: 1}}, two, ""},
		{core.Queue{MaxRunningPerUser: core.Running{Jobs: 1}}, two + three, Running},
		{core.Queue{MaxRunningPerUser: core.Running{GPU: 1500}}, two, ""},
		{core.Queue{MaxRunningPerUser: core.Running{GPU: 1500}}, two + three, Running},
	} {
		c.lab.Name, c.lab.Weight = "lab", 1
		r, err := Audit(write(t, nodes, []core.Queue{c.lab, team}, jobs, c.script))
		must(t, err)
		if names(r) != c.why {
			t.Errorf("%+v: audit names %v, want %q: %v", c.lab, names(r), c.why, r.Violations)
		}
	}
}

// The CPU and the memory of Isolated queues count too, whichever GPUs jobs use.
func TestIsolatedResources(t *testing.T) {
	q := []core.Queue{
		{Name: "org", Weight: 1, Mode: quota.Isolated, Resources: []core.ResourceQuota{{Resource: "cpu", Nominal: 3000}}},
		{Name: "iso", Parent: "org", Weight: 1},
		{Name: "mem", Weight: 1, Mode: quota.Isolated, Resources: []core.ResourceQuota{{Resource: "memory", Nominal: 2048}}},
		{Name: "team", Parent: "mem", Weight: 1, Mode: quota.Isolated, Resources: []core.ResourceQuota{{Resource: "memory", Nominal: 1024}}},
	}
	jobs := `x,w,iso,dev,HP,0,false,1,1000,2000,1024,,0,100,completed,0,false,,
y,w,org,dev,HP,0,false,1,0,1000,1024,,0,100,completed,0,false,,
z,w,iso,dev,HP,0,false,1,0,1000,1024,,0,100,completed,0,false,,
m,w,team,dev,HP,0,false,1,0,1000,1024,,0,100,completed,0,false,,
n,w,team,dev,HP,0,false,1,0,1000,1024,,0,100,completed,0,false,,
o,w,mem,dev,HP,0,false,1,0,1000,2048,,0,100,completed,0,false,,
p,w,mem,dev,HP,0,false,1,0,1000,1024,,0,100,completed,0,false,,
`
	for script, want := range map[string]string{
		"1 bind x-0 a0 0\n2 bind y-0 a0 -":                                        "",
		"1 bind x-0 a0 0\n2 bind y-0 a0 -\n3 bind z-0 a0 -":                       Quota,
		"1 bind x-0 a0 0\n2 bind y-0 a0 -\n3 release x-0 failed\n3 bind z-0 a0 -": "",
		"1 bind m-0 a0 -\n2 bind n-0 a0 -":                                        Quota,
		"1 bind o-0 a0 -\n2 bind m-0 a0 -":                                        "",
		"1 bind o-0 a0 -\n2 bind m-0 a0 -\n3 bind p-0 a0 -":                       Quota,
	} {
		r, err := Audit(write(t, nodes, q, jobs, script+"\n"))
		must(t, err)
		if got := names(r); got != want {
			t.Errorf("%s\naudit names %q, want %q: %v", script, got, want, r.Violations)
		}
	}
}

// A locked job keeps its protection within nominal quota. One that is bound beyond it was
// found so, and may be evicted; not moved.
func TestLockedQuota(t *testing.T) {
	q := []core.Queue{
		{Name: "q", Weight: 1},
		{Name: "iso", Weight: 1, Quota: []core.Quota{{Model: "*", Nominal: 2000, BorrowingLimit: core.Unlimited, LendingLimit: core.Unlimited}}},
	}
	two := `x,w,iso,dev,HP,0,false,1,2000,1000,1024,,0,100,completed,0,true,,
y,w,iso,dev,HP,0,false,1,500,1000,1024,,0,100,completed,0,true,,
z,w,iso,dev,HP,0,false,1,2000,1000,1024,,0,100,completed,0,false,,
`
	for script, want := range map[string]string{
		"1 bind z-0 a0 0,1\n2 bind x-0 a0 2,3\n3 release x-0 reclaimed z\n":                                                                   Locked,
		"1 bind x-0 a0 0,1\n2 bind y-0 a0 2\n3 release x-0 reclaimed z\n":                                                                     Locked,
		"1 bind x-0 a0 0,1\n2 bind y-0 a0 2\n3 release y-0 reclaimed z\n":                                                                     "",
		"1 bind x-0 a0 0,1\n2 bind y-0 a0 2\n3 release y-0 migrated z\n":                                                                      Locked,
		"1 bind x-0 a0 0,1\n2 bind y-0 a0 2\n3 release y-0 reclaimed z\n4 release x-0 finished\n5 bind y-0 b0 2\n6 release y-0 reclaimed z\n": Locked,
	} {
		r, err := Audit(write(t, nodes, q, two, script))
		must(t, err)
		if got := names(r); got != want {
			t.Errorf("%s\naudit names %q, want %q: %v", script, got, want, r.Violations)
		}
	}
}

// A pod that is moved holds two places, until one of them is released.
func TestMoves(t *testing.T) {
	jobs := strings.TrimSuffix(workloadHeader, "\n") + `,mobility
x,w,q,inference,HP,0,false,1,2000,1000,1024,,0,100,completed,0,false,,,replaceable
g,w,q,inference,HP,0,true,2,1000,1000,1024,,0,100,completed,0,false,required=leaf,label:g;apart:node:g,replaceable
p,w,q,inference,HP,0,false,1,1000,1000,1024,,0,100,completed,0,false,,disk=ssd,replaceable
l,w,q,inference,HP,0,false,1,1000,1000,1024,,0,100,completed,0,true,,,replaceable
s,w,q,inference,HP,0,false,1,1000,1000,1024,,0,100,completed,0,false,,,stays
`
	nodes := `a0,A100,4,16000,65536,a,s,,,disk=ssd
a1,A100,4,16000,65536,a,s,,,
a2,A100,4,16000,65536,a,s,,,
b0,A100,4,16000,65536,b,s,,,
h0,H800,4,16000,65536,b,s,,,
`
	for script, want := range map[string]string{
		"1 bind x-0 a0 0,1\n2 migrate x-0 a1 0,1\n3 moved x-0\n4 release x-0 finished\n4 end x":        "",
		"1 bind x-0 a0 0,1\n2 migrate x-0 a1 0,1\n3 movefailed x-0\n4 release x-0 finished\n4 end x":   "",
		"1 bind x-0 a0 0,1\n2 migrate x-0 a1 0,1\n3 moved x-0\n4 migrate x-0 a0 2,3\n5 movefailed x-0": "",
		"1 bind x-0 a0 0,1\n2 migrate x-0 a1 0,1":                                                      "",
		"1 bind x-0 a0 0,1\n2 migrate x-0 a1 0,1\n3 bind p-0 a0 1":                                     Device,
		"1 bind x-0 a0 0,1\n2 migrate x-0 a1 0,1\n3 bind s-0 a1 1":                                     Device,
		"1 bind x-0 a0 0,1\n2 migrate x-0 a1 0,1\n3 moved x-0\n4 bind p-0 a0 1":                        "",
		"1 bind x-0 a0 0,1\n2 bind s-0 a1 0\n3 migrate x-0 a1 0,1":                                     Device,
		"1 bind x-0 a0 0,1\n2 migrate x-0 a0 2,3":                                                      Move,
		"1 bind x-0 a0 0,1\n2 migrate x-0 h0 0,1":                                                      Model,
		"1 bind x-0 a0 0,1\n2 migrate x-0 a1 0 1000":                                                   Request,
		"1 bind x-0 a0 0,1\n2 migrate x-0 a1 0,1\n3 migrate x-0 b0 0,1":                                Move,
		"1 migrate x-0 a0 0,1":                                                                          Move,
		"1 bind s-0 a0 0\n2 migrate s-0 a1 0":                                                           Move,
		"1 bind l-0 a0 0\n2 migrate l-0 a1 0":                                                           Locked,
		"1 bind p-0 a0 0\n2 migrate p-0 a1 0":                                                           Affinity,
		"1 bind g-0 a0 0\n1 bind g-1 a1 0\n2 migrate g-0 a2 0\n3 moved g-0":                             "",
		"1 bind g-0 a0 0\n1 bind g-1 a1 0\n2 migrate g-0 a1 1":                                          Affinity,
		"1 bind g-0 a0 0\n1 bind g-1 a1 0\n2 migrate g-0 b0 1":                                          Topology,
		"1 bind x-0 a0 0,1\n2 cordon a1\n3 migrate x-0 a1 0,1":                                          Node,
		"1 bind x-0 a0 0,1\n2 migrate x-0 a1 0,1\n3 lost a1\n4 end s":                                   Node,
		"1 bind x-0 a0 0,1\n2 release x-0 migrated":                                                     Move,
		"1 bind x-0 a0 0,1\n2 migrate x-0 a1 0,1\n3 release x-0 finished\n3 end x":                      Move,
		"1 bind x-0 a0 0,1\n2 migrate x-0 a1 0,1\n3 lost a0\n3 movefailed x-0\n3 release x-0 node_lost": "",
	} {
		r, err := Audit(write(t, nodes, nil, jobs, script+"\n"))
		must(t, err)
		if got := names(r); got != want && !(want == Move && strings.HasPrefix(got, Move+" ")) {
			t.Errorf("%s\naudit names %q, want %q: %v", script, got, want, r.Violations)
		}
	}
}

// Each edit of a good run's files is a breach of one invariant.
func TestEdits(t *testing.T) {
	const script = "5 bind h-0 a0 0\n9 bind lp-0 a0 1\n20 release h-0 finished\n20 end h\n20 end f rejected\n"
	for name, test := range map[string]struct{ file, old, new, want string }{
		"another hash":             {"summary.json", `"decision_sha256": "`, `"decision_sha256": "0`, Hash},
		"another line":             {"decisions.jsonl.gz", `"reason":"Placed"`, `"reason":"Because"`, Hash},
		"other JSON":               {"decisions.jsonl.gz", `{"t":5,"op":"bind"`, `{ "op": "bind", "t": 5`, Hash},
		"time goes back":           {"decisions.jsonl.gz", `{"t":9,`, `{"t":4,`, Order + " " + Conservation + " " + Hash + " " + Metric},
		"not JSON":                 {"decisions.jsonl.gz", `{"t":9,`, `t=9,`, Format + " " + Conservation + " " + Hash + " " + Metric},
		"a GPU that is not there":  {"decisions.jsonl.gz", `"gpus":[1]`, `"gpus":[4]`, Device + " " + Hash + " " + Metric},
		"a node that is not there": {"decisions.jsonl.gz", `"lp-0","node":"a0"`, `"lp-0","node":"a9"`, Node + " " + Conservation + " " + Hash + " " + Metric},
		"released elsewhere":       {"decisions.jsonl.gz", `"node":"a0","gpus":[0],"milli":1000,"cpu_milli":1000,"mem_mib":1024,"reason":"finished"`, `"node":"a1","gpus":[0],"milli":1000,"cpu_milli":1000,"mem_mib":1024,"reason":"finished"`, Pod + " " + Hash},
		"a job lost":               {"jobs.csv", "g,q,", "gg,q,", Conservation},
		"a pending job that runs":  {"jobs.csv", ",running", ",pending", Conservation},
		"another user":             {"jobs.csv", ",running,", ",running,eve", Conservation},
		"counts":                   {"summary.json", `"completed": 1`, `"completed": 2`, Conservation},
		"GAR": {"summary.json", `"gar": {
    "mean": 0.`, `"gar": {
    "mean": 0.9`, Metric},
		"SOR":           {"summary.json", `"sor": 0.`, `"sor": 0.9`, Metric},
		"topology":      {"summary.json", `"cross_group_gpus": 0`, `"cross_group_gpus": 1`, Metric},
		"stranded GPUs": {"summary.json", `"stranded_gpus": `, `"stranded_gpus": 1`, Metric},
		"jobs that fit": {"summary.json", `"across": `, `"across": 1`, Metric},
		"preemptions":   {"summary.json", `"preemptions": 0`, `"preemptions": 1`, Metric},
		"evictions":     {"jobs.csv", ",0,0,0,0,,,,running", ",1,0,0,0,,,,running", Metric},
		"the window":    {"summary.json", `"to_s": 20`, `"to_s": 21`, Metric},
		"waiting":       {"summary.json", `"mean_s": `, `"mean_s": 1`, Metric},
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, nodes, queues, jobs, script)
			replace(t, dir, test.file, test.old, test.new)
			r, err := Audit(dir)
			must(t, err)
			if got := names(r); got != test.want {
				t.Errorf("audit names %q, want %q", got, test.want)
				for _, v := range r.Violations {
					t.Log(v)
				}
			}
		})
	}
}

// A pod must not be bound before its job is submitted, nor after it ended.
func TestLifetime(t *testing.T) {
	dir := write(t, nodes, queues, jobs, "5 bind h-0 a0 0\n20 release h-0 finished\n20 end h\n30 bind lp-0 a0 1\n")
	replace(t, dir, "decisions.jsonl.gz", `{"t":30,"op":"bind","job":"lp","pod":"lp-0"`, `{"t":30,"op":"bind","job":"h","pod":"h-0"`)
	r, err := Audit(dir)
	must(t, err)
	if r.Violations[0].Invariant != Lifetime || r.Violations[0].Line != 3 {
		t.Errorf("after its end: %v", r.Violations)
	}

	dir = write(t, nodes, queues, jobs, "5 bind h-0 a0 0\n")
	replace(t, dir, "decisions.jsonl.gz", `{"t":5,`, `{"t":2,`)
	r, err = Audit(dir)
	must(t, err)
	if r.Violations[0].Invariant != Lifetime {
		t.Errorf("before its submission: %v", r.Violations)
	}
}

func TestMissingFileIsBadInput(t *testing.T) {
	if _, err := Audit(t.TempDir()); !workload.IsBadInput(err) {
		t.Errorf("error %v, want bad input", err)
	}
}

// The fast scanner and encoding/json must agree on what Muster writes.
func TestScanAgainstJSON(t *testing.T) {
	for _, line := range []string{
		`{"t":1.25,"op":"bind","job":"a","pod":"a-0","node":"n","gpus":[0,1,63],"milli":1000,"cpu_milli":1,"mem_mib":2,"reason":"Placed"}`,
		`{"t":0,"op":"release","job":"a-b","pod":"a-b-10","node":"n","gpus":[],"milli":0,"cpu_milli":1,"mem_mib":2,"reason":"preempted","for":"x"}`,
	} {
		var fast, slow decision
		if !fast.scan([]byte(line)) {
			t.Errorf("not scanned: %s", line)
		}
		must(t, slow.unmarshal([]byte(line)))
		if fast.t != slow.t || string(fast.pod) != string(slow.pod) || len(fast.gpus) != len(slow.gpus) ||
			string(fast.forJob) != string(slow.forJob) || string(fast.reason) != string(slow.reason) || fast.mem != slow.mem {
			t.Errorf("scanned %+v, parsed %+v", fast, slow)
		}
	}
	var d decision
	if d.scan([]byte(`{"t":1,"op":"bind","job":"a\"b","pod":"a-0","node":"n","gpus":[],"milli":0,"cpu_milli":1,"mem_mib":2,"reason":"P"}`)) {
		t.Error("an escape was scanned, not left to encoding/json")
	}
}
