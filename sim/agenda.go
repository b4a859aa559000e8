package sim

import "github.com/muster-sched/muster/core"

// event is something that will happen. serial breaks ties in the order of planning.
type event struct {
	at     core.Time
	serial uint64
	do     happening
	job    *state
	runner int32 // for finish: which, and in which turn it was planned
	turn   int32
	node   *node
	leave  *leave
	move   *transfer
	with   *state // for measure: the job that joined
	fault  fault
}

// happening is the kind of an event.
type happening uint8

const (
	finish    happening = iota // a runner has done its work
	depart                     // evicted pods leave
	fail                       // a node is lost
	repair                     // a node comes back
	timeout                    // the engine asked to be woken
	withdraw                   // a runner leaves, whatever it does
	arrive                     // a pod that is moved is at its new place
	ask                        // some pod is to be moved
	lend                       // pods of a job are to be on standby
	measure                    // the throughput of a job beside another one is known
	takeBack                   // pods on standby go on before their time
	breakDown                  // a job fails
	resubmit                   // its owner submits it again
	release                    // its owner releases it
	mend                       // a node is repaired
	test                       // a test of a node ends
	learn                      // a round ends under a policy that chooses by goodput
	step                       // a training has started, or is at the end of an epoch
)

// byChance reports whether events of the kind go on as long as the run does.
func (h happening) byChance() bool {
	return h == fail || h == repair || h == ask || h == lend || h == takeBack || h == breakDown || h == mend || h == test || h == learn
}

// leave is a set of pods that are terminating.
type leave struct {
	pods []int
	why  Release
	by   Eviction
	// images is set for the pods of a job that was suspended, and leaves now.
	images bool
}

// agenda is a binary heap of events, the next on top.
type agenda []event

func (a agenda) before(i, j int) bool {
	if a[i].at != a[j].at {
		return a[i].at < a[j].at
	}
	return a[i].serial < a[j].serial
}

func (a *agenda) push(e event) {
	h := append(*a, e)
	*a = h
	for i := len(h) - 1; i > 0; {
		p := (i - 1) / 2
		if !h.before(i, p) {
			return
		}
		h[i], h[p] = h[p], h[i]
		i = p
	}
}

func (a *agenda) pop() event {
	h := *a
	top, last := h[0], len(h)-1
	h[0] = h[last]
	h[last] = event{}
	h = h[:last]
	*a = h
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			return top
		}
		if c+1 < last && h.before(c+1, c) {
			c++
		}
		if !h.before(c, i) {
			return top
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}
