package sim

import "github.com/muster-sched/muster/core"

// A Watcher is a [Sink] that may ask why jobs wait.
type Watcher interface {
	Sink
	// Passed tells that the engine has decided at t, in so many scheduling passes
	// since the last call: it is called after each of the first, later now and
	// then. why says where a job stands, as [core.Engine.Explain] does and at its
	// cost; to ask changes nothing. last tells that the run is over.
	Passed(t core.Time, passes int, why Why, last bool)
}

// Of the first passes each is told, then one in so many: the engine waits then
// until the sinks know all that happened.
const (
	firstPasses = 4096
	onePassIn   = 1024
)

// Why says where a job stands, and false when it is not live.
type Why func(job string) (core.Explanation, bool)

// passed tells the watchers among the sinks that the engine has decided, when it
// is time. The engine waits for them meanwhile: they ask it.
func (b *beside) passed(now core.Time, why Why, last bool) error {
	b.passes++
	if b.untold++; b.passes > firstPasses && b.untold < onePassIn && !last {
		return nil
	}
	passes := b.untold
	b.untold = 0
	for _, s := range b.sinks {
		w, ok := s.(Watcher)
		if !ok {
			continue
		}
		if err := b.settle(); err != nil {
			return err
		}
		w.Passed(now, passes, why, last)
	}
	return nil
}
