package defrag

import "github.com/muster-sched/muster/core/cluster"

// inWaves makes the moves in the state, in waves, and returns them: a move is in the first in
// which there is room for it while all pods of the wave still have their old places.
//
// Moves to one node keep their order. Then the waves come to an end: of the moves that are
// left, all before the first are over, none after it has taken room on its node, and in
// that state it was found to fit. Without that, a later move could take the room that an
// earlier one, for which the later one's own node waits, was found to fit in.
//
// The pods of a job that restart elsewhere are all in one wave: they are together in the order, where
// the last one was. A cycle by that (two gangs, each with a pod that goes where the other's has left)
// ends the plan: what is left is given up.
func (p *planner) inWaves(moves []Move) []Move {
	out := make([]Move, 0, len(moves))
	left := together(moves)
	for wave := 0; len(left) > 0; wave++ {
		from := len(out)
		waits := map[cluster.NodeID]bool{}
		var rest []Move
		for len(left) > 0 {
			n := AtOnce(left)
			mark, ok := p.state.Mark(), true
			for _, m := range left[:n] {
				ok = ok && !waits[m.To] && p.double(m)
			}
			if ok {
				out = append(out, left[:n]...)
			} else {
				p.state.Rollback(mark)
				for _, m := range left[:n] {
					waits[m.To] = true
				}
				rest = append(rest, left[:n]...)
			}
			left = left[n:]
		}
		if len(out) == from {
			break // such a cycle, or an affinity to a pod that has moved
		}
		for i := range out[from:] {
			m := &out[from+i]
			m.Wave = wave
			p.state.Remove(m.Pod, m.From)
		}
		left = rest
	}
	return out
}

// together puts the pods of a job that restart next to each other, at the place of the last.
func together(moves []Move) []Move {
	of := map[int32][]Move{}
	for _, m := range moves {
		if m.Restarts() {
			of[m.Pod.Job] = append(of[m.Pod.Job], m)
		}
	}
	seen := map[int32]int{}
	var out []Move
	for _, m := range moves {
		if !m.Restarts() {
			out = append(out, m)
			continue
		}
		all := of[m.Pod.Job]
		if seen[m.Pod.Job]++; seen[m.Pod.Job] == len(all) {
			out = append(out, all...)
		}
	}
	return out
}

// AtOnce returns how many of the first of some moves begin together: one, or all pods of a
// job that restart.
func AtOnce(moves []Move) int {
	n := 1
	for moves[0].Restarts() && n < len(moves) && moves[n].Restarts() && moves[n].Pod.Job == moves[0].Pod.Job {
		n++
	}
	return n
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
