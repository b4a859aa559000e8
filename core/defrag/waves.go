package defrag

import (
	"slices"

	"github.com/muster-sched/muster/core/cluster"
)

// inWaves makes the moves in the state, in waves, and returns them: a move is in the first in
// which there is room for it while all pods of the wave still have their old places.
//
// Moves to one node keep their order. Then the waves come to an end: of the moves that are
// left, all before the first are over, none after it has taken room on its node, and in
// that state it was found to fit. Without that, a later move could take the room that an
// earlier one, for which the later one's own node waits, was found to fit in.
func (p *planner) inWaves(moves []Move) []Move {
	out := make([]Move, 0, len(moves))
	left := slices.Clone(moves)
	for wave := 0; len(left) > 0; wave++ {
		from := len(out)
		waits := map[cluster.NodeID]bool{}
		rest := left[:0]
		for _, m := range left {
			if waits[m.To] || !p.double(m) {
				waits[m.To] = true
				rest = append(rest, m)
				continue
			}
			m.Wave = wave
			out = append(out, m)
		}
		if len(out) == from {
			break // an affinity to a pod that has moved: what is left is given up
		}
		for _, m := range out[from:] {
			p.state.Remove(m.Pod, m.From)
		}
		left = rest
	}
	return out
}

// double places a pod at the end of its move, if there is room, and leaves it at the start. It
// does not repel itself: two pods of a job that must be in different zones may each move within
// their own.
func (p *planner) double(m Move) bool {
	at := p.state.Remove(m.Pod, m.From)
	ok := len(p.placer.PodOn(p.pods.Unit(m.Pod), m.To)) > 0
	p.state.PlaceFound(m.Pod, at) // its node may have less room than its pods take
	return ok
}
