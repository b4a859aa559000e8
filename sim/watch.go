package sim

import "github.com/muster-sched/muster/core"

// A Watcher is a [Sink] that may ask why jobs wait.
type Watcher interface {
	Sink
	// Passed reports that the engine has decided at t, and the number of scheduling
	// passes since the last call. It is called after each of the first passes, and later
	// after some of them. inquire begins an inquiry, which is valid during the call and
	// changes nothing. last is set at the end of the run.
	Passed(t core.Time, passes int, inquire func() Inquiry, last bool)
}

// Each of the first passes is reported, then one in this number: for each, the engine
// waits until the sinks have received everything.
const (
	firstPasses = 4096
	onePassIn   = 256
)

// Inquiry asks why jobs wait: [core.Inquiry] is one.
type Inquiry interface {
	// Why returns why pods of a job wait; false if none wait.
	Why(job string) (core.Reason, string, bool)
	// Counted is the number of answers that required a count of the nodes.
	Counted() int
}

// passed calls the watchers among the sinks, if a call is due. The engine waits for them,
// because they inquire of it.
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
