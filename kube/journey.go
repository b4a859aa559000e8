package kube

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Journey is a job's way from its creation until enough of it runs, once. Times
// are those of the scheduler's clock, but Created, which is the API server's.
type Journey struct {
	Job, Queue string
	// Pods is how many started together.
	Pods int
	// Submitted is when all was there that the job needs to be decided on, Decided
	// when it had its places, Bound when the API server had taken the last of the
	// bindings, Running when that many pods ran.
	Created, Submitted, Decided, Bound, Running time.Time
}

// journey is a Journey under way.
type journey struct {
	Journey
	runs int // pods that run
}

// setOff notes that the engine has been told of a job for the first time.
func (m *changes) setOff(g *group) {
	if m.traced == nil || g.ran || g.id.Kind == others || !m.ours(g) {
		return
	}
	g.journey = &journey{Journey: Journey{Job: g.job, Queue: g.queue, Created: g.created, Submitted: m.clock()}}
}

// decidedOn notes that the first places of a job were chosen.
func (m *changes) decidedOn(g *group, pods int) {
	if j := g.journey; j != nil && j.Decided.IsZero() {
		j.Decided, j.Pods = m.clock(), pods
	}
}

// boundAll notes that no binding of a job is under way.
func (m *changes) boundAll(g *group) {
	if j := g.journey; j != nil && j.Bound.IsZero() && !j.Decided.IsZero() {
		j.Bound = m.clock()
		m.arrive(g)
	}
}

// movesOn notes that a pod runs now, as it did not before.
func (m *changes) movesOn(g *group, from, to v1.PodPhase) {
	if j := g.journey; j != nil && from != to && to == v1.PodRunning {
		j.runs++
		m.arrive(g)
	}
}

// arrive reports a journey that is over.
func (m *changes) arrive(g *group) {
	j := g.journey
	if j.Bound.IsZero() || j.runs < j.Pods {
		return
	}
	j.Running = m.clock()
	g.journey = nil
	m.traced(&j.Journey)
}

func (t *tables) clock() time.Time { return time.Unix(0, int64(t.now)) }
