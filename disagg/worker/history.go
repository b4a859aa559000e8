package worker

// position is where a request is: before a segment, with its memory as the segments before it left it.
type position struct {
	segment int
	state   []version
	moves   map[int]*move // by placement, those that the sites know
}

// move is a segment under a placement.
type move struct {
	code   *Code
	number int // of the code, at the sites; -1 if they do not know it
	to     *position
}

// compile compiles what requests do that stay with one placement, and returns how much of the host's memory, and how many
// flags, a request needs at most.
func (x *runner) compile() (host int64, flags int) {
	x.start = &position{0, x.p.first(), map[int]*move{}}
	for placement := range x.placements {
		for at := x.start; at.segment < len(x.p.Segments); {
			m := x.move(at, placement)
			m.number, m.to.moves = len(x.moves), map[int]*move{}
			at.moves[placement] = m
			x.moves = append(x.moves, m)
			host, flags, at = max(host, m.code.Host), max(flags, m.code.Flags), m.to
		}
	}
	if x.o.Monitor == nil {
		return host, flags
	}
	for segment := range x.p.Segments {
		h, f := x.p.most(segment)
		host, flags = max(host, h), max(flags, f)
	}
	return host, flags
}

// move returns the move from a position under a placement. What comes after a change of the placement is compiled for one
// request: others hardly change at the same segment, and a run may change as often as it likes.
func (x *runner) move(at *position, placement int) *move {
	if m := at.moves[placement]; m != nil {
		return m
	}
	code := x.p.Compile(at.segment, at.state, x.placements[placement], x.sites)
	return &move{code, -1, &position{at.segment + 1, code.after, nil}}
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
