package sim

import (
	"sync/atomic"

	"github.com/muster-sched/muster/core"
)

// beside calls the sinks in a goroutine of its own, so that they measure and write while
// the engine decides. Each sink receives everything, in order.
type beside struct {
	sinks []Sink
	batch *batch
	full  chan *batch
	free  chan *batch
	done  chan struct{}
	// passes counts scheduling passes, untold those since the last call of the watchers.
	passes, untold int
	err            error // the first of a sink; the goroutine's
	// failed is set if there is an error.
	failed atomic.Bool
}

// batch is a sequence of calls of the sinks.
type batch struct {
	told   []told
	places []core.Placement // of those told, one after another
	// settled, if set, receives the result when the batch is done.
	settled chan error
}

// told is one call of a sink.
type told struct {
	call    call
	t       core.Time
	node    *core.Node
	live    *Live
	pods    int // how many of the batch's places
	bound   int // of the job, with its lost work
	lost    float64
	reason  core.Reason
	release Release
	up      bool       // a node is there
	over    *Rejection // of a job, when it is rejected

	eviction  Eviction
	recovered Recovered
}

// call names the method of a sink.
type call uint8

const (
	tellNode call = iota
	tellSubmitted
	tellBound
	tellReleased
	tellMoving
	tellMoveOver
	tellStandby
	tellResumed
	tellRecovered
	tellEnded
)

const (
	batchSize = 512
	batches   = 8
)

func newBeside(sinks []Sink) *beside {
	b := &beside{sinks: sinks, full: make(chan *batch, batches), free: make(chan *batch, batches), done: make(chan struct{})}
	for range batches - 1 {
		b.free <- &batch{}
	}
	b.batch = &batch{}
	go b.work()
	return b
}

// work makes the calls. After an error it makes none.
func (b *beside) work() {
	defer close(b.done)
	for batch := range b.full {
		at := 0
		for i := range batch.told {
			x := &batch.told[i]
			pods := batch.places[at : at+x.pods]
			at += x.pods
			for _, s := range b.sinks {
				if b.err == nil {
					b.err = x.tell(s, pods)
					b.failed.Store(b.err != nil)
				}
			}
		}
		if batch.settled != nil {
			batch.settled <- b.err
			batch.settled = nil
		}
		clear(batch.told) // it keeps jobs from being collected
		batch.told, batch.places = batch.told[:0], batch.places[:0]
		b.free <- batch
	}
}

func (x *told) tell(s Sink, pods []core.Placement) error {
	if l := x.live; l != nil {
		l.Bound, l.Lost = x.bound, x.lost
	}
	switch x.call {
	case tellNode:
		return s.Node(x.t, x.node, x.up)
	case tellSubmitted:
		return s.Submitted(x.t, x.live)
	case tellBound:
		return s.Bound(x.t, x.live, pods, x.reason)
	case tellReleased:
		return s.Released(x.t, x.live, pods, x.release, x.eviction)
	case tellStandby, tellResumed:
		l, ok := s.(Lender)
		switch {
		case !ok:
			return nil
		case x.call == tellStandby:
			return l.Standby(x.t, x.live, pods[0])
		}
		return l.Resumed(x.t, x.live, pods[0], x.eviction.Told)
	case tellRecovered:
		if h, ok := s.(Healer); ok {
			return h.Recovered(x.t, x.live, x.recovered)
		}
		return nil
	case tellMoving, tellMoveOver:
		m, ok := s.(Mover)
		switch {
		case !ok:
			return nil
		case x.call == tellMoving:
			return m.Moving(x.t, x.live, pods[0], x.reason, x.eviction.For)
		}
		if len(pods) == 1 {
			return m.MoveOver(x.t, x.live, pods[0], nil)
		}
		return m.MoveOver(x.t, x.live, pods[0], &pods[1])
	}
	return s.Ended(x.t, x.live, x.over)
}

// add adds a call, with the places of pods. The error is one that a sink returned for an
// earlier call.
func (b *beside) add(x told, pods []core.Placement) error {
	if b.failed.Load() {
		return b.settle()
	}
	x.pods = len(pods)
	b.batch.told = append(b.batch.told, x)
	b.batch.places = append(b.batch.places, pods...)
	if len(b.batch.told) < batchSize {
		return nil
	}
	b.full <- b.batch
	b.batch = <-b.free
	return nil
}

// settle waits until the sinks have received everything, and returns the first error of a
// sink.
func (b *beside) settle() error {
	settled := make(chan error, 1)
	b.batch.settled = settled
	b.full <- b.batch
	b.batch = <-b.free
	return <-settled
}

// node reports a node.
func (b *beside) node(t core.Time, n *core.Node, up bool) error {
	return b.add(told{call: tellNode, t: t, node: n, up: up}, nil)
}

// job reports the present state of a job.
func (b *beside) job(t core.Time, s *state, x told, pods []core.Placement) error {
	x.t, x.live, x.bound, x.lost = t, s.told, s.Bound, s.Lost
	return b.add(x, pods)
}

// close ends the goroutine when the sinks have received everything.
func (b *beside) close() error {
	err := b.settle()
	close(b.full)
	<-b.done
	return err
}
