package worker

import "fmt"

// position is where a request is: before a segment, with its memory as the segments before it left it. Requests that came
// there under the same plans share it.
type position struct {
	segment int
	state   []version
	moves   []*move // by placement; nil until a request takes it
}

// move is a segment under a plan.
type move struct {
	code   *Code
	number int // of the code, at the sites
	to     *position
}

// move returns the move from a position under a placement. The first time it compiles it, and tells the sites once they
// are open.
func (x *runner) move(at *position, placement int) (*move, error) {
	x.compiling.Lock()
	defer x.compiling.Unlock()
	if m := at.moves[placement]; m != nil {
		return m, nil
	}
	m := &move{code: x.p.Compile(at.segment, at.state, x.placements[placement], x.sites), number: len(x.moves)}
	m.to = &position{at.segment + 1, m.code.after, make([]*move, len(x.placements))}
	at.moves[placement] = m
	x.moves = append(x.moves, m)
	for _, w := range x.all {
		if err := w.Define(m.code); err != nil {
			return nil, fmt.Errorf("segment %d: %w", at.segment, err)
		}
	}
	return m, nil
}

// compile compiles what requests do that stay with one placement, and returns how much of the host's memory, and how many
// flags, a request needs at most.
func (x *runner) compile() (host int64, flags int, err error) {
	x.start = &position{0, x.p.first(), make([]*move, len(x.placements))}
	for placement := range x.placements {
		at := x.start
		for at.segment < len(x.p.Segments) {
			m, err := x.move(at, placement)
			if err != nil {
				return 0, 0, err
			}
			host, flags, at = max(host, m.code.Host), max(flags, m.code.Flags), m.to
		}
	}
	if x.o.Monitor == nil {
		return host, flags, nil
	}
	for segment := range x.p.Segments {
		h, f := x.p.most(segment)
		host, flags = max(host, h), max(flags, f)
	}
	return host, flags, nil
}

// most is the host's memory and the flags that a segment needs if all that its steps read comes from elsewhere, each atom
// by itself.
func (p *Program) most(segment int) (host int64, flags int) {
	s := p.Segments[segment]
	for step := s.From; step < s.To; step++ {
		for _, a := range p.reads[step] {
			host += int64(p.atoms[a].To-p.atoms[a].From) + hostAlign
			flags++
		}
		again := &p.Steps[step].Again
		host += int64(max(again.From.To-again.From.From, again.To.To-again.To.From)) + hostAlign
	}
	return host, flags
}
