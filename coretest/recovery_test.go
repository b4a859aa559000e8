package coretest

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-sched/muster/core"
)

// TestRecovery plays random events to small clusters where jobs often fail, and why is known: to begin with, later, or twice.
func TestRecovery(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := randomPolicy(rt)
		s := &story{rt: rt}
		p.Recovery = core.Recovery{
			Mode: pick(s, core.Recover, core.Recover, core.RecoveryDryRun), MinConfidence: 400, Strikes: s.up(3), MaxRestarts: pick(s, 0, 2),
			Window: pick(s, 0, 9*core.Second, 30*core.Second), MaxCordoned: pick[int64](s, 0, 400, 1000), Tests: s.chance(2),
		}
		s = storyOf(rt, p)
		for range 10 + s.up(40) {
			for range 1 + s.up(3) {
				s.event()
				s.failure()
			}
			s.Decide()
			s.CheckIdle()
		}
		s.CheckReplay()
		s.handOn(p)
	})
}

// handOn lets another engine go on after that of the story: it knows the same of failures.
func (s *story) handOn(p core.Policy) {
	next, err := core.New(core.Config{Policy: p})
	if err != nil {
		s.rt.Fatal(err)
	}
	now := s.Now
	for _, n := range s.Twin.nodes {
		if n.up {
			if err := next.Apply(now, core.NodeAdded{Node: n.Node}); err != nil {
				s.rt.Fatal(err)
			}
		}
	}
	want := s.Engine.Failures()
	want.Nodes = slices.DeleteFunc(want.Nodes, func(n core.SuspectNode) bool { return !s.Twin.node(n.Node).up })
	if err := next.Apply(now, want); err != nil {
		s.rt.Fatal(err)
	}
	if p.Recovery.Mode == core.RecoveryDryRun { // it holds no job, so nothing of that is told
		for _, j := range want.Jobs {
			if j.Held != "" || j.Avoids != nil {
				s.rt.Errorf("a dry run holds %+v", j)
			}
		}
	}
	if is := next.Failures(); fmt.Sprint(is) != fmt.Sprint(want) {
		s.rt.Errorf("handed on:\n%+v\nfound:\n%+v", want, is)
	}
}

// failure lets a pod fail, says why one failed, or what people and tests find out.
func (s *story) failure() {
	live := s.Twin.Live()
	if len(live) == 0 {
		return
	}
	switch node := pick(s, s.Twin.nodes...); s.up(6) {
	case 0, 1:
		if j, i, ok := s.somePod(runs); ok {
			on := s.Twin.jobs[j].pods[i].at.Node
			s.Must(core.PodEnded{Job: j, Pod: i, Failed: true})
			s.diagnose(j, on)
		}
	case 2:
		s.diagnose(pick(s, "j0", "j1", pick(s, live...)), node.Name) // some are over
	case 3:
		if node.up {
			s.Must(core.NodeTested{Node: node.Name, Passed: s.chance(2)})
		}
	case 4:
		if s.chance(4) {
			s.Must(core.JobReleased{Job: pick(s, "j0", pick(s, live...))})
		}
	}
}

// diagnose says why a job failed, perhaps once more, and which nodes are under suspicion.
func (s *story) diagnose(job, on string) {
	for again := true; again; again = s.chance(4) {
		s.Must(core.JobDiagnosed{
			Job: job, Class: pick(s, "infrastructure/gpu", "framework/software"), At: pick(s, 0, s.Now/2), Confidence: int64(pick(s, 300, 700, 1000)),
			Suspects: pick(s, nil, []string{on}, []string{on, "n0"}, []string{"nowhere"}),
			Remedy:   core.Remedy{Restarts: pick(s, core.AsBefore, 0, 1, 3), Node: pick(s, core.NoStrike, core.StrikeNode, core.TestNode, core.CordonNode)},
		})
	}
}

// What an engine before this one decided takes effect at once: a node that was cordoned for failures takes no pods, a job that was held does not start,
// and one that avoids a node starts elsewhere.
func TestFoundFailuresTakeEffect(t *testing.T) {
	p := core.Policy{Queueing: core.Queueing{Mode: core.BestEffortFIFO}, Recovery: core.DefaultRecovery()}
	p.Recovery.Mode = core.Recover
	e, err := core.New(core.Config{Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	now := 100 * core.Second
	tell := func(ev core.Event) {
		t.Helper()
		if err := e.Apply(now, ev); err != nil {
			t.Fatal(err)
		}
	}
	want := func(want string) {
		t.Helper()
		got := ""
		for _, d := range e.Decide(now) {
			if d.Op == core.Bind {
				got += d.Job + " on " + d.Pods[0].Node + "; "
			}
		}
		if got != want {
			t.Errorf("at %g s: got %q, want %q", now.Seconds(), got, want)
		}
		now += core.Second
	}
	for _, name := range []string{"a", "b"} {
		tell(core.NodeAdded{Node: core.Node{Name: name, Model: "A", GPUs: 4}})
	}
	tell(core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}})
	tell(core.FailuresFound{
		Nodes: []core.SuspectNode{{Node: "a", Cordoned: true}},
		Jobs:  []core.FailedJob{{Job: "held", At: core.Second, Held: "it would fail again"}, {Job: "picky", At: core.Second, Avoids: []core.AvoidedNode{{Node: "b", Until: 1000 * core.Second}}}},
	})
	// Node c would hold picky if it were empty.
	tell(core.NodeAdded{Node: core.Node{Name: "c", Model: "C", GPUs: 1}})
	tell(core.JobSubmitted{Job: core.Job{Name: "full", Queue: "q", Priority: 1, Submitted: now, Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: core.WholeGPU, Models: []string{"C"}}}}}})
	for _, name := range []string{"held", "picky", "plain"} {
		tell(core.JobSubmitted{Job: core.Job{Name: name, Queue: "q", Submitted: now, Tasks: []core.Task{{Pods: 1, Request: core.Request{GPU: core.WholeGPU}}}}})
	}
	want("full on c; plain on b; ")
	tell(core.NodeCordoned{Node: "a"})
	want("picky on a; ")
	tell(core.JobReleased{Job: "held"})
	tell(core.JobEnded{Job: "plain"})
	if now = 1001 * core.Second; len(e.Failures().Jobs) == 0 {
		t.Error("it forgot what the other engine knew")
	}
	want("held on a; ")
}

// A job that has ended avoids a node for the whole window, also one of more than a day, whatever other jobs fail meanwhile.
func TestAvoidsForTheWindow(t *testing.T) {
	p := core.Policy{Recovery: core.DefaultRecovery()}
	p.Recovery.Mode, p.Recovery.Window, p.Recovery.Strikes = core.Recover, 48*3600*core.Second, 0
	e, err := core.New(core.Config{Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	now := core.Second
	fails := func(job string) {
		t.Helper()
		for _, ev := range []core.Event{core.NodeAdded{Node: core.Node{Name: "n-" + job, Model: "A", GPUs: 1}}, core.JobDiagnosed{
			Job: job, Class: "infrastructure/gpu", Suspects: []string{"n-" + job}, Confidence: 1000, Remedy: core.Remedy{Restarts: 3},
		}} {
			if err := e.Apply(now, ev); err != nil {
				t.Fatal(err)
			}
		}
		e.Decide(now)
	}
	fails("first")
	now += 25 * 3600 * core.Second
	for i := range 200 {
		fails(fmt.Sprint("j", i))
	}
	is := e.Failures().Jobs
	if i := slices.IndexFunc(is, func(j core.FailedJob) bool { return j.Job == "first" }); i < 0 || len(is[i].Avoids) != 1 {
		t.Errorf("after 25 hours of 48, the job no longer avoids the node on which it failed: %d jobs are known", len(is))
	}
}
