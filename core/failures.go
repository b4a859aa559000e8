package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core/cluster"
)

// This file hands what was decided about failures on to an engine that comes after this one. What is over by the policy's times is not handed on.

type (
	// FailedJob is what counts of the failures of a job.
	FailedJob struct {
		Job string
		// At is when it failed last.
		At Time
		// Held is why it is held; "" if it is not.
		Held string
		// Restarts are those that count, the first first.
		Restarts []FailureRestart
		// Avoids are the nodes where it does not start.
		Avoids []AvoidedNode
	}
	// FailureRestart is a restart after a failure of a class, whose remedy allowed so many within a day; 0 if that is not known.
	FailureRestart struct {
		Class   string
		Allowed int
		At      Time
	}
	// AvoidedNode is a node where a job does not start before a time.
	AvoidedNode struct {
		Node  string
		Until Time
	}
	// SuspectNode is what is held against a node.
	SuspectNode struct {
		Node string
		// Cordoned says that it is cordoned for failures. It counts among those that may be; it takes no pods until an operator uncordons it, or a test passed.
		Cordoned bool
		Strikes  []Strike // in the order in which they were counted
	}
	// Strike is a failure that points to a node.
	Strike struct {
		At    Time // of the failure; within a job no two are at the same time
		Class string
		Job   string
	}
)

// Failures returns what counts of failures now, by name; nothing without a policy's [Recovery].
func (e *Engine) Failures() FailuresFound {
	var out FailuresFound
	r := &e.recovery
	for name, f := range r.jobs {
		j := FailedJob{Job: name, At: f.at, Held: f.held}
		for _, x := range f.restarts {
			if e.now-x.at < aDay {
				j.Restarts = append(j.Restarts, FailureRestart{x.class, x.allowed, x.at})
			}
		}
		for _, a := range f.avoids {
			if n := r.state.Node(a.node); n.Up && a.until > e.now {
				j.Avoids = append(j.Avoids, AvoidedNode{n.Spec.Name, a.until})
			}
		}
		if j.Held != "" || j.Restarts != nil || j.Avoids != nil {
			out.Jobs = append(out.Jobs, j)
		}
	}
	slices.SortFunc(out.Jobs, func(a, b FailedJob) int { return strings.Compare(a.Job, b.Job) })
	ids := maps.Clone(r.cordoned)
	if ids == nil {
		ids = map[cluster.NodeID]bool{}
	}
	for id := range r.strikes {
		ids[id] = true
	}
	for id := range ids {
		n := SuspectNode{Node: r.state.Node(id).Spec.Name, Cordoned: r.cordoned[id]}
		for _, s := range r.strikes[id] {
			if e.now-s.At < e.policy.Recovery.Window {
				n.Strikes = append(n.Strikes, s)
			}
		}
		if n.Cordoned || n.Strikes != nil {
			out.Nodes = append(out.Nodes, n)
		}
	}
	slices.SortFunc(out.Nodes, func(a, b SuspectNode) int { return strings.Compare(a.Node, b.Node) })
	return out
}

// foundBefore takes in what an engine before this one decided. A dry run holds no job, and keeps none off nodes.
func (r *recoveries) foundBefore(now Time, ev FailuresFound) error {
	for i := range ev.Jobs {
		if ev.Jobs[i].Job == "" {
			return fmt.Errorf("failures of a job without a name")
		}
	}
	mode := r.policy.Recovery.Mode
	if mode == NoRecovery {
		return nil
	}
	for i := range ev.Nodes {
		n := &ev.Nodes[i]
		id, err := r.node(n.Node)
		if err != nil {
			continue // it is no more
		}
		r.strikes[id] = slices.Clone(n.Strikes)
		for k := range r.strikes[id] {
			r.strikes[id][k].At = min(r.strikes[id][k].At, now)
		}
		if n.Cordoned {
			r.cordoned[id] = true
			if mode == Recover {
				r.setCordoned(now, id, true)
			}
		}
	}
	for i := range ev.Jobs {
		r.foundJob(now, &ev.Jobs[i])
	}
	return nil
}

// foundJob takes in what was decided about a job, which may be live or not.
func (r *recoveries) foundJob(now Time, is *FailedJob) {
	f := &failures{at: min(is.At, now), decided: true}
	for _, x := range is.Restarts {
		f.restarts = append(f.restarts, restartAfter{x.Class, x.Allowed, min(x.At, now)})
	}
	if r.policy.Recovery.Mode == Recover {
		f.held = is.Held
		for _, a := range is.Avoids {
			if id, err := r.node(a.Node); err == nil && a.Until > now {
				r.avoid(f, id, a.Until)
			}
		}
	}
	r.jobs[is.Job] = f
	j := r.Engine.jobs.byName[is.Job]
	if j == nil {
		return
	}
	if f.held != "" {
		j.held = true
	}
	r.refile(now, j)
}
