package sim

import "github.com/muster-sched/muster/core"

// A Watcher is a [Sink] that may ask why jobs wait.
type Watcher interface {
	Sink
	// Passed tells that the engine has decided at t, in this many scheduling passes
	// since the last call: it is called after each of the first, later now and
	// then. inquire begins an inquiry, which is valid during the call; to ask
	// changes nothing. last tells that the run is over.
	Passed(t core.Time, passes int, inquire func() Inquiry, last bool)
}

// Of the first passes each is told, then one in this many: the engine waits then
// until the sinks know all that happened.
const (
	firstPasses = 4096
	onePassIn   = 256
)

// Inquiry asks why jobs wait: [core.Inquiry] is one.
type Inquiry interface {
	// Why says why pods of a job wait; false when none do.
	Why(job string) (core.Reason, string, bool)
	// Counted is how many answers took a count of the nodes.
	Counted() int
}

// passed tells the watchers among the sinks that the engine has decided, when it
// is time. The engine waits for them meanwhile: they ask it.
func (b *beside) passed(now core.Time, inquire func() Inquiry, last bool) error {
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
		w.Passed(now, passes, inquire, last)
	}
	return nil
}
