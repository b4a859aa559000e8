package sim

import "github.com/muster-sched/muster/core"

// A Watcher is a [Sink] that may ask why jobs wait.
type Watcher interface {
	Sink
	// Passed tells that the engine has decided at t. why says where a job
	// stands, as [core.Engine.Explain] does and at its cost; to ask changes
	// nothing. last tells that the run is over.
	Passed(t core.Time, why Why, last bool)
}

// Why says where a job stands, and false when it is not live.
type Why func(job string) (core.Explanation, bool)

// passed tells the watchers among the sinks that the engine has decided.
func (r *run) passed(now core.Time, last bool) {
	for _, w := range r.watchers {
		w.Passed(now, r.why, last)
	}
}

// watch finds the watchers among the sinks.
func (r *run) watch() {
	r.why = r.engine.Explain
	for _, s := range r.sinks {
		if w, ok := s.(Watcher); ok {
			r.watchers = append(r.watchers, w)
		}
	}
}
