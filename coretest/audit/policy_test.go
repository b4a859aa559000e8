package audit

import (
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/quota"
	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/runlog"
)

// check audits a run of a script by rules, and compares the invariants that it breaks.
func check(t *testing.T, r *metrics.Rules, queues []core.Queue, jobs, script, want string) {
	t.Helper()
	got, err := Audit(writeBy(t, r, nodes, queues, jobs, script+"\n"))
	must(t, err)
	if names(got) != want {
		t.Errorf("%s\naudit names %q, want %q: %v", script, names(got), want, got.Violations)
	}
}

// Under a policy that packs, two pods have the same GPUs if the second one was bound for that, and no third one.
func TestPacking(t *testing.T) {
	var jobs string
	for _, name := range []string{"x", "y", "z"} {
		jobs += name + ",w,q,training,HP,50,false,1,2000,1000,1024,,0,100,completed,0,false,,\n"
	}
	packs := &metrics.Rules{Packing: true}
	const two = "1 bind x-0 a0 0,1\n2 packed y-0 a0 0,1\n"
	for _, c := range []struct {
		rules        *metrics.Rules
		script, want string
	}{
		{packs, two + "5 release x-0 finished\n5 end x\n6 packed z-0 a0 0,1", ""},
		{packs, two + "3 packed z-0 a0 0,1", Device},
		{packs, "1 bind x-0 a0 0,1\n2 bind y-0 a0 0,1", Device},
		{packs, "1 packed x-0 a0 0,1", Device},
		{packs, "1 bind x-0 a0 0,1\n2 packed y-0 a0 1,2", Device},
		{&metrics.Rules{}, two, Device},
	} {
		check(t, c.rules, nil, jobs, c.script, c.want)
	}
}

// A job that is held after a failure does not start, and one restarts as often as the policy says.
func TestRecoveries(t *testing.T) {
	const jobs = "x,w,q,training,HP,50,false,1,1000,1000,1024,,0,100,completed,0,false,,\n"
	const failed = "1 bind x-0 a0 0\n5 release x-0 node_lost\n"
	for script, want := range map[string]string{
		failed + "5 hold x\n9 unhold x\n10 bind x-0 a0 0":                      "",
		failed + "5 hold x\n10 bind x-0 a0 0":                                  Recovery,
		failed + "5 restart x\n6 restart x\n7 hold x\n8 unhold x\n9 restart x": "",
		failed + "5 hold x\n6 restart x":                                       Recovery,
		failed + "5 hold x\n6 hold x":                                          Recovery,
		failed + "5 restart x\n6 restart x":                                    "",
		failed + "5 restart x\n6 restart x\n7 restart x":                       Recovery,
		failed + "5 restart x\n6 restart x\n90005 restart x":                   "",
	} {
		check(t, &metrics.Rules{MaxRestarts: 2}, nil, jobs, script, want)
	}
}

// A pod that restarts elsewhere to make room for a job gets its place back, in time.
func TestRestarts(t *testing.T) {
	const jobs = `x,w,q,training,HP,50,false,1,4000,1000,1024,,0,100,completed,0,false,,
g,w,q,training,HP,10,true,2,1000,1000,1024,,0,100,completed,0,false,,
s,w,q,training,HP,10,false,2,1000,1000,1024,,0,100,completed,0,false,,
l,w,q,training,LP,0,false,1,1000,1000,1024,,0,100,completed,0,false,,
h,w,q,training,HP,90,false,1,1000,1000,1024,,0,100,completed,0,false,,
t,w,q,training,HP,10,false,1,1000,1000,1024,,0,100,completed,0,false,,tolerate:only
`
	room := &metrics.Rules{RoomMoves: 2, RoomRestarts: true, EvictGrace: 30}
	const gang = "1 bind g-0 a0 0\n1 bind g-1 a1 0\n"
	const gone = gang + "10 release g-0 restarted x 5\n12 release g-1 restarted x 5\n"
	for script, want := range map[string]string{
		gone + "12 bind x-0 a0 0,1,2,3\n12 again g-0 a1 1\n12 again g-1 a1 0":                 "",
		gone + "12 again g-0 a1 1\n12 again g-1 a1 0":                                         "", // x waits for others
		gone + "12 bind x-0 a0 0,1,2,3\n12 bind g-0 a1 1\n12 bind g-1 a1 0":                   Restart,
		gone + "12 bind x-0 a0 0,1,2,3\n20 again g-0 a1 1\n20 again g-1 a1 0":                 Restart,
		gone + "15 lost b1\n20 bind g-0 a1 1\n20 bind g-1 a1 0":                               "",
		gone + "12 bind x-0 a0 0,1,2,3\n50 bind h-0 b0 0":                                     Restart, // never
		gone + "12 bind x-0 a0 0,1,2,3\n20 bind h-0 b0 0":                                     "",      // others may be leaving still
		"1 bind t-0 a0 0\n5 release t-0 restarted l\n5 again t-0 a1 0":                        Restart + " " + Class,
		"1 bind h-0 a0 0\n5 release h-0 restarted x\n5 again h-0 a1 0":                        Restart, // it ranks higher
		"1 bind l-0 a0 0\n5 again h-0 a1 0":                                                   Restart, // it was not stopped
		"1 bind t-0 a0 0\n5 release t-0 restarted x\n5 bind x-0 a0 0,1,2,3\n5 again t-0 h0 0": Restart, // another model

		"1 bind s-0 a0 0\n1 bind s-1 a0 1\n5 release s-0 restarted x\n5 release s-1 restarted x\n5 bind x-0 a0 0,1,2,3\n5 again s-0 a1 0\n5 again s-1 a1 1": "",
		"1 bind s-0 a0 0\n1 bind s-1 a0 1\n5 release s-0 restarted x\n5 release s-1 restarted x\n5 bind x-0 a0 0,1,2,3\n5 again s-0 a1 0\n6 bind l-0 a1 2":  Restart,
		// The plan is larger than the policy allows.
		"1 bind l-0 a0 3\n" + gang + "5 release g-0 restarted x\n5 release g-1 restarted x\n5 release l-0 restarted x\n5 again g-0 a1 1\n5 again g-1 a1 0\n5 again l-0 b0 0": Restart,
	} {
		check(t, room, nil, jobs, script, want)
	}
	check(t, &metrics.Rules{RoomMoves: 2}, nil, jobs, "1 bind l-0 a0 0\n5 release l-0 restarted x\n5 bind x-0 a0 0,1,2,3\n5 again l-0 a1 0", Restart)
}

// A pod that restarts for no other job, as requested or to free a node, gets its place back, in time: one
// that no other pod was on since.
func TestRestartsForNone(t *testing.T) {
	const jobs = `g,w,q,training,HP,10,true,2,1000,1000,1024,,0,100,completed,60,false,,
l,w,q,training,LP,0,false,1,1000,1000,1024,,0,100,completed,60,false,,
k,w,q,training,LP,0,false,1,1000,1000,1024,,0,100,completed,60,true,,
o,w,q,training,LP,0,false,1,1000,1000,1024,,0,100,completed,60,false,,
t,w,q,training,HP,10,false,1,1000,1000,1024,,0,100,completed,60,false,,tolerate:only
`
	const gang = "1 bind g-0 a0 0\n1 bind g-1 a1 0\n"
	const gone = gang + "10 release g-0 restarted - 5\n12 release g-1 restarted - 5\n"
	const left = "5 release l-0 restarted - 4\n"
	for script, want := range map[string]string{
		gone + "12 asked g-0 a1 1\n12 asked g-1 a1 0":           "",
		gone + "12 asked g-0 a1 0\n12 asked g-1 a1 1":           "", // a place that its own pod left
		gone + "12 freed g-0 a1 1\n12 freed g-1 a1 0":           "",
		gone + "12 again g-0 a1 1\n12 again g-1 a1 0":           Restart, // it made room for no job
		gone + "12 bind g-0 a1 1\n12 bind g-1 a1 0":             Restart,
		gone + "20 asked g-0 a1 1\n20 asked g-1 a1 0":           Restart, // too late
		gone + "15 lost b1\n20 bind g-0 a1 1\n20 bind g-1 a1 0": "",
		gone + "60 bind l-0 b0 0":                               Restart, // never

		"1 bind l-0 a0 0\n1 bind o-0 a1 1\n" + left + "5 asked l-0 a1 0":                                  "",
		"1 bind l-0 a0 0\n1 bind o-0 a1 1\n" + left + "5 release o-0 finished\n5 end o\n5 asked l-0 a1 1": Restart, // it was in use
		"1 bind l-0 a0 0\n1 bind o-0 a1 1\n4 release o-0 finished\n4 end o\n" + left + "5 asked l-0 a1 1": "",
		"1 bind k-0 a0 0\n5 release k-0 restarted - 4\n5 asked k-0 a1 0":                                  Locked,
		"1 bind t-0 a0 0\n5 release t-0 restarted - 4\n5 asked t-0 h0 0":                                  Restart, // another model
		"1 bind l-0 a0 0\n1 bind t-0 a0 1\n5 release l-0 preempted t 4\n5 asked l-0 a1 0":                 Restart, // it was not to restart
	} {
		check(t, &metrics.Rules{EvictGrace: 30, DefragRestarts: "All"}, nil, jobs, script, want)
	}

	// What the policy allows.
	const lp, hp = "1 bind l-0 a0 0\n" + left + "5 freed l-0 a1 0", "1 bind t-0 a0 0\n5 release t-0 restarted - 4\n5 freed t-0 a1 0"
	for _, x := range []struct{ restarts, lp, hp string }{{"", Restart, Restart}, {"LP", "", Restart}, {"All", "", ""}} {
		r := &metrics.Rules{EvictGrace: 30, DefragRestarts: x.restarts, HPOnly: true}
		check(t, r, nil, jobs, lp, x.lp)
		check(t, r, nil, jobs, hp, x.hp)
	}
}

// A job waits for a pod that moves for the same plan, as long as the move takes.
func TestRestartBesideMove(t *testing.T) {
	const jobs = "job,task,queue,kind,class,priority,gang,pods,gpu_milli,cpu_milli,mem_mib,gpu_models,submit_s,duration_s,outcome,checkpoint_s,locked,topology,affinity,mobility\n" +
		`x,w,q,training,HP,50,false,1,4000,1000,1024,,0,100,completed,0,false,,,
m,w,q,inference,HP,10,false,1,1000,1000,1024,,0,100,completed,0,false,,,replaceable
l,w,q,training,LP,0,false,1,3000,1000,1024,,0,100,completed,0,false,,,
`
	room := &metrics.Rules{RoomMoves: 2, RoomRestarts: true}
	const begun = "1 bind m-0 a1 0\n1 bind l-0 a0 0,1,2\n5 room m-0 b0 0 x\n5 release l-0 restarted x\n"
	for script, want := range map[string]string{
		begun + "9 moved m-0\n9 bind x-0 a0 0,1,2,3\n9 again l-0 a1 0,1,2":  "",
		begun + "9 moved m-0\n9 bind x-0 a0 0,1,2,3\n11 again l-0 a1 0,1,2": Restart,
		begun + "9 movefailed m-0\n11 bind l-0 a0 0,1,2":                    "",
		begun + "99 bind x-0 b1 0,1,2,3":                                    "", // the move goes on
	} {
		check(t, room, nil, jobs, script, want)
	}
}

// The moves of a later wave begin when those before are over. All count in the bound of the policy.
func TestWaves(t *testing.T) {
	const jobs = "job,task,queue,kind,class,priority,gang,pods,gpu_milli,cpu_milli,mem_mib,gpu_models,submit_s,duration_s,outcome,checkpoint_s,locked,topology,affinity,mobility\n" +
		`x,w,q,training,HP,50,false,1,4000,1000,1024,,0,100,completed,0,false,,,
a,w,q,inference,HP,10,false,1,2000,1000,1024,,0,100,completed,0,false,,,replaceable
b,w,q,inference,HP,10,false,1,1000,1000,1024,,0,100,completed,0,false,,,replaceable
c,w,q,inference,HP,10,false,1,1000,1000,1024,,0,100,completed,0,false,,,replaceable
`
	const begun = "1 bind a-0 a0 0,1\n1 bind b-0 a1 0\n1 bind c-0 a0 2\n5 room b-0 b0 0 x\n"
	const second = begun + "9 moved b-0\n9 room a-0 a1 0,1 x\n"
	for script, want := range map[string]string{
		second + "12 moved a-0\n12 room c-0 a1 2 x\n15 moved c-0\n15 bind x-0 a0 0,1,2,3": Restart, // three pods
		second + "12 moved a-0\n20 room c-0 a1 2 x\n25 moved c-0\n25 bind x-0 a0 0,1,2,3": "",      // another plan
		begun + "7 room a-0 a1 1,2 x\n9 moved b-0\n10 moved a-0":                          Move,
		begun + "9 movefailed b-0\n9 room a-0 b0 0,1 x\n9 room c-0 a1 2 x\n12 moved a-0":  "", // another plan
	} {
		check(t, &metrics.Rules{RoomMoves: 2}, nil, jobs, script, want)
	}
}

// The queue of a job that restarts is charged until it runs again.
func TestRestartKeepsQuota(t *testing.T) {
	iso := []core.Queue{
		{Name: "q", Weight: 1},
		{Name: "iso", Weight: 1, Mode: quota.Isolated, Quota: []core.Quota{{Model: "*", Nominal: 2000}}},
	}
	const jobs = `x,w,q,training,HP,50,false,1,4000,1000,1024,,0,100,completed,0,false,,
r,w,iso,training,HP,10,false,1,2000,1000,1024,,0,100,completed,0,false,,
o,w,iso,training,HP,10,false,1,1000,1000,1024,,0,100,completed,0,false,,
`
	room := &metrics.Rules{RoomMoves: 2, RoomRestarts: true, EvictGrace: 30}
	check(t, room, iso, jobs, "1 bind r-0 a0 0,1\n5 release r-0 restarted x\n5 bind x-0 a0 0,1,2,3\n5 again r-0 a1 0,1", "")
	check(t, room, iso, jobs, "1 bind r-0 a0 0,1\n5 release r-0 restarted x\n7 bind o-0 a1 0\n9 release o-0 finished\n9 end o\n10 lost b0\n11 bind r-0 a1 0,1", Quota)
	check(t, room, iso, jobs, "1 bind r-0 a0 0,1\n5 release r-0 restarted x\n6 lost b0\n7 bind o-0 a1 0", "")
}

// No pod is evicted for a job that has not waited for as long as the policy says. It may restart elsewhere.
func TestDelay(t *testing.T) {
	const jobs = `l,w,q,batch,LP,0,false,1,1000,1000,1024,,0,100,completed,0,false,,
h,w,q,training,HP,0,false,1,1000,1000,1024,,5,100,completed,0,false,,
`
	for script, want := range map[string]string{
		"1 bind l-0 a0 0\n14 release l-0 preempted h":   Delay,
		"1 bind l-0 a0 0\n14 release l-0 reclaimed h":   Delay,
		"1 bind l-0 a0 0\n15 release l-0 preempted h":   "",
		"1 bind l-0 a0 0\n16 release l-0 preempted h 2": Delay,
	} {
		check(t, &metrics.Rules{Delay: 10}, nil, jobs, script, want)
		check(t, &metrics.Rules{}, nil, jobs, script, "")
	}
}

// No pod leaves for a job that has received less before its lease is over. The lease of a gang's pods begins with the gang.
func TestLease(t *testing.T) {
	const jobs = `l,w,q,batch,LP,0,false,1,1000,1000,1024,,0,100,completed,0,false,,
g,w,q,training,HP,0,true,1-2,1000,1000,1024,,0,100,completed,0,false,,
h,w,q,training,HP,0,false,1,1000,1000,1024,,0,100,completed,0,false,,
`
	for script, want := range map[string]string{
		"1 bind l-0 a0 0\n10 release l-0 lease_over h":                                               Lease,
		"1 bind l-0 a0 0\n11 release l-0 lease_over h":                                               "",
		"1 bind l-0 a0 0\n12 release l-0 lease_over h 2":                                             Lease,
		"1 bind g-0 a0 0\n5 bind g-1 a0 1\n11 release g-1 lease_over h":                              "",
		"1 bind g-0 a0 0\n5 bind g-1 a0 1\n10 release g-1 lease_over h\n10 release g-0 lease_over h": Lease,
	} {
		check(t, &metrics.Rules{Lease: 10}, nil, jobs, script, want)
	}
	check(t, &metrics.Rules{}, nil, jobs, "1 bind l-0 a0 0\n50 release l-0 lease_over h", Lease)
}

// Under LongTermFairness no job starts where one could of a queue with a lower index, or one before it in its queue.
func TestTurn(t *testing.T) {
	const jobs = `a1,w,a,training,HP,0,false,1,1000,1000,1024,,0,1000,completed,0,false,,
a2,w,a,training,HP,0,false,1,1000,1000,1024,,0,1000,completed,0,false,,
b1,w,b,training,HP,0,false,1,1000,1000,1024,,0,1000,completed,0,false,,
b2,w,b,training,HP,0,false,2,1000,1000,1024,,0,1000,completed,0,false,,
l,w,b,training,LP,0,false,1,4000,1000,1024,,0,1000,completed,0,false,,
a3,w,a,training,HP,0,false,1,1000,1000,1024,,0.5,1000,completed,0,false,,
`
	inTime := &metrics.Rules{LongTerm: &metrics.LongTermRules{Horizon: 900}, EvictGrace: 5}
	queues := []core.Queue{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}}
	for script, want := range map[string]string{
		"1 bind a1-0 a0 0\n1 bind b1-0 a0 1\n1 bind b2-0 a0 3\n1 bind a2-0 a0 2\n1 bind b2-1 a1 0": "", // in turns
		"1 bind a1-0 a0 0\n1 bind a2-0 a0 1\n9 bind b1-0 a0 2":                                     Turn,
		"1 bind a1-0 a0 0\n9 bind b1-0 a0 1\n9 bind a3-0 a0 2":                                     Turn, // a2 was submitted first
		"1 bind l-0 a1 0,1,2,3\n1 bind a1-0 a0 0\n1 bind a2-0 a0 1\n3 release l-0 preempted b1 1":  "",   // b1 has a place
		"1 bind a1-0 a0 0\n1 bind b1-0 a0 1\n1 bind b2-0 a1 0\n9 bind a2-0 a0 2\n9 bind a3-0 a0 3": "",   // b2 has run
	} {
		check(t, inTime, queues, jobs, script, want)
	}
	for jobOrder, want := range map[string]string{"Submission": Turn, "LeastAttained": Turn, "FinishTimeFairness": ""} {
		inTime := &metrics.Rules{LongTerm: &metrics.LongTermRules{Horizon: 900, Jobs: jobOrder}, EvictGrace: 5}
		check(t, inTime, queues, jobs, "1 bind a1-0 a0 0\n1 bind b1-0 a0 1\n1 bind b2-0 a1 0\n9 bind a3-0 a0 2", want)       // a2 was submitted first
		check(t, inTime, queues, jobs, "1 bind a1-0 a0 0\n1 bind b1-0 a0 1\n5 release a1-0 node_lost\n9 bind a1-0 a0 0", "") // before a2
		check(t, inTime, queues, jobs, "1 bind a1-0 a0 0\n1 bind a2-0 a0 1\n9 bind b1-0 a0 2", Turn)                         // queues still take turns
	}
	check(t, &metrics.Rules{}, queues, jobs, "1 bind a1-0 a0 0\n1 bind a2-0 a0 1\n9 bind b1-0 a0 2", "")
	owns := []core.Queue{{Name: "a", Weight: 1, Quota: []core.Quota{{Model: "A", Nominal: 8000}}}, {Name: "b", Weight: 1}}
	check(t, inTime, owns, jobs, "1 bind a1-0 a0 0\n1 bind a2-0 a0 1\n9 bind b1-0 a0 2", "") // quota comes first
}

// A gang with too few pods is stopped in time, unless pods of it succeeded.
func TestStaleGangs(t *testing.T) {
	const jobs = `g,w,q,training,HP,0,true,2,1000,1000,1024,,0,1000,completed,0,false,,
k,w,q,training,HP,0,true,2,1000,1000,1024,,0,1000,completed,0,true,,
`
	const lost = "1 bind g-0 a0 0\n1 bind g-1 a1 0\n10 lost a1\n10 release g-1 node_lost\n"
	for script, want := range map[string]string{
		lost + "75 release g-0 node_lost":                  "",
		lost + "76 release g-0 node_lost":                  Stale,
		lost + "60 bind g-1 b0 0\n90 release g-0 finished": "",
		"1 bind k-0 a0 0\n1 bind k-1 a1 0\n10 lost a1\n10 release k-1 node_lost\n99 release k-0 node_lost": "", // locked
	} {
		check(t, &metrics.Rules{StaleGrace: 60, EvictGrace: 5}, nil, jobs, script, want)
	}
}

// Under hpOnly no LP job evicts.
func TestHPOnly(t *testing.T) {
	const jobs = `l,w,q,batch,LP,0,false,1,1000,1000,1024,,0,100,completed,0,false,,
m,w,q,batch,LP,9,false,1,1000,1000,1024,,0,100,completed,0,false,,
h,w,q,training,HP,0,false,1,1000,1000,1024,,0,100,completed,0,false,,
`
	for script, want := range map[string]string{
		"1 bind l-0 a0 0\n2 release l-0 preempted h":                                                     "",
		"1 bind l-0 a0 0\n2 release l-0 preempted m":                                                     HPOnly,
		"1 bind l-0 a0 0\n2 release l-0 reclaimed m":                                                     HPOnly,
		"1 bind l-0 a0 0\n1 bind m-0 a0 1\n2 release m-0 finished\n2 end m\n9 release l-0 preempted m 2": HPOnly,
		"1 bind l-0 a0 0\n1 bind h-0 a0 1\n2 release h-0 finished\n2 end h\n9 release l-0 preempted h 2": "",
	} {
		check(t, &metrics.Rules{HPOnly: true}, nil, jobs, script, want)
		if want == HPOnly {
			check(t, &metrics.Rules{}, nil, jobs, script, "")
		}
	}
}

// Only in and below the queues that the policy names does a lock protect from eviction.
func TestProtectedQueues(t *testing.T) {
	const jobs = `l,w,below,batch,LP,0,false,1,1000,1000,1024,,0,100,completed,0,true,,
o,w,other,batch,LP,0,false,1,1000,1000,1024,,0,100,completed,0,true,,
h,w,other,batch,HP,9,false,1,1000,1000,1024,,0,100,completed,0,false,,
`
	queues := []core.Queue{{Name: "prod", Weight: 1}, {Name: "below", Parent: "prod", Weight: 1}, {Name: "other", Weight: 1}}
	const evicts, spares = "1 bind o-0 a0 0\n2 release o-0 preempted h", "1 bind l-0 a0 0\n2 release l-0 preempted h"
	check(t, &metrics.Rules{ProtectedQueues: []string{"prod"}}, queues, jobs, evicts, "")
	check(t, &metrics.Rules{ProtectedQueues: []string{"prod"}}, queues, jobs, spares, Locked)
	check(t, &metrics.Rules{Unprotected: true}, queues, jobs, spares, "")
	check(t, &metrics.Rules{}, queues, jobs, evicts, Locked)
}

// Under priority: Queue, no job is preempted for one of another queue. Quota is reclaimed between
// queues.
func TestOwnQueue(t *testing.T) {
	const jobs = `l,w,q,batch,LP,0,false,1,1000,1000,1024,,0,100,completed,0,false,,
m,w,q,batch,LP,9,false,1,1000,1000,1024,,0,100,completed,0,false,,
o,w,other,batch,LP,9,false,1,1000,1000,1024,,0,100,completed,0,false,,
`
	queues := []core.Queue{{Name: "q", Weight: 1}, {Name: "other", Weight: 1}}
	for script, want := range map[string]string{
		"1 bind l-0 a0 0\n2 release l-0 preempted m": "",
		"1 bind l-0 a0 0\n2 release l-0 preempted o": OwnQueue,
		"1 bind l-0 a0 0\n2 release l-0 reclaimed o": "",
	} {
		check(t, &metrics.Rules{OwnQueue: true}, queues, jobs, script, want)
		check(t, &metrics.Rules{}, queues, jobs, script, "")
	}
}

// Nodes have 4 GPUs and 16 cores: half of 4 cores are kept for each idle GPU.
func TestCPUReserve(t *testing.T) {
	const jobs = `c,w,q,batch,HP,0,false,1,0,9000,1024,,0,100,completed,0,false,,
d,w,q,batch,HP,0,false,1,0,8000,1024,,0,100,completed,0,false,,
g,w,q,training,HP,0,false,1,2000,1000,1024,,0,100,completed,0,false,,
v,w,q,training,LP,0,false,1,1000,1000,1024,,0,100,completed,0,false,,
big,w,q,training,HP,0,false,1,1000,15000,1024,,0,100,completed,0,false,,
`
	kept := &metrics.Rules{CPUReserve: 0.5, EvictGrace: 30}
	const later = "\n90 bind v-0 b1 0"
	for script, want := range map[string]string{
		"1 bind d-0 a0 -" + later:                                                   "",
		"1 bind c-0 a0 -" + later:                                                   CPUReserve,
		"1 bind g-0 a0 0,1\n2 bind c-0 a0 -" + later:                                "",
		"1 bind d-0 a0 -\n2 release d-0 finished\n2 end d\n3 bind c-0 a0 -" + later: CPUReserve,
		// A GPU may be kept for a job that others leave for.
		"1 bind v-0 a1 0\n5 bind c-0 a0 -\n20 release v-0 preempted g 2\n90 bind v-0 b1 0": "",
		"1 bind v-0 a1 0\n5 bind c-0 a0 -\n20 release v-0 preempted g 9\n90 bind v-0 b1 0": CPUReserve,
		"1 bind c-0 a0 -": "", // the end of the run
	} {
		check(t, kept, nil, jobs, script, want)
	}
	check(t, &metrics.Rules{}, nil, jobs, "1 bind c-0 a0 -"+later, "")
	check(t, kept, nil, jobs, "1 bind big-0 a0 0"+later, "") // it has a GPU
}

// A pod on standby lends its GPUs to LP pods alone, and goes on within the bound.
func TestStandby(t *testing.T) {
	const jobs = `o,w,q,inference,HP,0,false,1,2000,4000,4096,,0,100,completed,0,false,,
p,w,q,inference,HP,0,false,1,2000,4000,4096,,0,100,completed,0,false,,
l,w,q,batch,LP,0,false,1,2000,1000,1024,,0,100,completed,0,false,,
s,w,q,batch,LP,0,false,1,1000,1000,1024,,0,100,completed,0,false,,
h,w,q,training,HP,0,false,1,2000,1000,1024,,0,100,completed,0,false,,
f,w,q,inference,HP,0,false,1,500,1000,1024,,0,100,completed,0,false,,
`
	rules := &metrics.Rules{EvictGrace: 30}
	const lent = "1 bind o-0 a0 0,1\n2 standby o-0\n3 bind l-0 a0 0,1\n"
	const two = "1 bind o-0 a0 0,1\n1 bind p-0 a0 2,3\n2 standby o-0\n2 standby p-0\n3 bind l-0 a0 1,3\n" // of two owners
	for script, want := range map[string]string{
		lent + "20 release l-0 preempted o 10\n20 resume o-0 10":                                                "",
		lent + "45 release l-0 preempted o 10\n45 resume o-0 10":                                                Standby, // later than the bound
		lent + "20 release l-0 preempted o 10\n25 resume o-0 10":                                                Standby, // later than it could
		lent + "10 resume o-0 10":                                                                               Device,  // the pod that it hosts is there still
		two + "20 release l-0 preempted o 10\n25 resume o-0 10\n25 resume p-0 25":                               Standby, // nothing else was to leave
		two + "4 bind s-0 a0 2\n20 release l-0 preempted o 10\n25 release s-0 preempted o 10\n25 resume o-0 10": "",      // s used its CPU
		two + "10 release o-0 finished\n11 bind h-0 a0 0,1":                                                     Device,  // l has one of them still
		"1 bind o-0 a0 0,1\n2 standby o-0\n3 bind h-0 a0 0,1":                                                   Standby,
		"1 bind l-0 a0 0,1\n2 standby l-0":                                                                      Standby,
		"1 bind f-0 a0 0\n2 standby f-0":                                                                        Standby,
	} {
		check(t, rules, nil, jobs, script, want)
	}
}

// What a pod on standby lends is idle, as far as the files of the run say; what it keeps is not.
func TestIdleOnStandby(t *testing.T) {
	const jobs = "o,w,q,inference,HP,0,false,1,2000,4000,4096,,0,100,completed,0,false,,\n"
	dir := write(t, nodes, nil, jobs, "1 bind o-0 a0 0,1\n10 standby o-0\n20 resume o-0 20\n30 standby o-0\n40 release o-0 finished\n40 end o\n")
	for at, want := range map[core.Time][2]int64{5: {2, 12_000}, 15: {4, 14_000}, 25: {2, 12_000}, 35: {4, 14_000}, 45: {4, 16_000}} {
		idle, _, err := runlog.ReadIdle(dir, at*core.Second)
		must(t, err)
		free := int64(0)
		for _, gpu := range idle[0].Free {
			free += int64(gpu / core.WholeGPU)
		}
		if got := [2]int64{free, idle[0].CPU}; got != want {
			t.Errorf("at %d s: %v GPUs and milli-cores are idle, expected %v", at, got, want)
		}
	}
}
