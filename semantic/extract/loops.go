package extract

import (
	"regexp"
	"strings"

	"github.com/muster-sched/muster/semantic/python"
)

// This file finds out for how long a job trains from its loops: from the names of their variables, and from what they do where these say nothing.

// loop is a loop with a bound, or over data.
type loop struct {
	unit  string       // by its variable: the key loop.epochs or loop.steps, or empty
	bound *python.Expr // nil: it has none, as one over a loader
}

// loops notes the bounds of the loops of a file that train. Of loops in loops, the outermost that has a bound is for how long.
func (x *extraction) loops(all []python.Statement, file string, r rank) {
	functions := map[string]string{} // that train, and the unit of one call
	for i := range all {
		if s := &all[i]; s.Kind == python.Def && s.Indent == 0 {
			if unit := updatesIn(all, i, nil); unit != "" {
				functions[s.Target] = unit
			}
		}
	}
	for i := range all {
		s := &all[i]
		if s.Kind != python.For && s.Kind != python.While {
			continue
		}
		in := r
		if s.Function != "" && r == declared {
			in = local
		}
		l := loopOf(s)
		if l.unit == "" && l.bound != nil && !otherLoop.MatchString(strings.ToLower(s.Target)) {
			l.unit = trainsIn(all, i, functions)
		}
		if l.unit == "loop.epochs" && overBatches(all, i) { // the epochs of an update, as in PPO
			continue
		}
		if l.unit != "" && l.bound != nil {
			x.add(setting{key: l.unit, expr: l.bound, file: file, rank: in, at: where(file, s.Line)})
		}
	}
}

// otherLoop is in the names of variables of loops that count neither steps nor epochs.
var otherLoop = regexp.MustCompile(`episode|fold|seed|run|trial|client|round|stage|task|rank|layer|restart|split`)

// loopOf returns the loop that a statement is: for epoch in range(10), while step < 1000.
func loopOf(s *python.Statement) loop {
	var l loop
	target := s.Target
	if s.Kind == python.While {
		if c := &s.Value; c.Kind == python.Binary && (c.Text == "<" || c.Text == "<=") && c.Args[0].Kind == python.Name {
			target, l.bound = c.Args[0].Text, &c.Args[1]
		}
	}
	for _, c := range s.Calls {
		name := c.Callee()
		if s.Kind == python.For && (name == "islice" || name == "itertools.islice") && len(c.Args) > 1 { // so many batches of data without an end
			l.bound = &c.Args[min(2, len(c.Args)-1)]
			break
		}
		if s.Kind != python.For || (name != "range" && name != "trange" && !strings.HasSuffix(name, ".trange")) || len(c.Args) == 0 {
			continue
		}
		last := c.Args[0]
		if len(c.Args) > 1 {
			last = c.Args[1]
			if last.Kind == python.Binary && last.Text == "+" && last.Args[1].Text == "1" { // range(1, n + 1)
				last = last.Args[0]
			} else if last.Kind == python.Number && c.Args[0].Text == "1" { // range(1, 1001)
				last = python.Expr{Kind: python.Binary, Text: "-", Args: []python.Expr{last, c.Args[0]}, Line: last.Line}
			}
		}
		l.bound = &last
		break
	}
	switch t := strings.ToLower(target[strings.LastIndexByte(target, '.')+1:]); {
	case strings.Contains(t, "epoch") || t == "ep":
		l.unit = "loop.epochs"
	case strings.Contains(t, "step") || t == "it" || t == "iter" || strings.HasPrefix(t, "iteration") || t == "update" || t == "i_iter":
		l.unit = "loop.steps"
	}
	return l
}

// trainsIn says by the body of the loop all[i] what it counts, if its variable does not: an inner loop over data that updates the model makes an epoch of it
// (the key loop.passes), an update without one a step (loop.turns). It is empty if the loop is in another, trains nothing, or has a loop in it whose variable says what it counts.
func trainsIn(all []python.Statement, i int, functions map[string]string) string {
	if outer(all, i) != nil {
		return ""
	}
	return updatesIn(all, i, functions)
}

// updatesIn is the unit of one run through the body of all[i], a loop or a function. It knows the units of functions that the body calls.
func updatesIn(all []python.Statement, i int, functions map[string]string) string {
	unit, inner := "", -1 // inner is how far a loop over data in the body is indented
	for j := i + 1; j < min(len(all), i+maxBody) && all[j].Indent > all[i].Indent; j++ {
		s := &all[j]
		if s.Indent <= inner {
			inner = -1
		}
		if s.Kind == python.For || s.Kind == python.While {
			switch l := loopOf(s); {
			case l.unit != "" && l.bound != nil:
				return ""
			case l.bound == nil && s.Kind == python.For && inner < 0:
				inner = s.Indent
			}
		}
		for k := range s.Calls {
			if of := functions[s.Calls[k].Callee()]; of != "" && unit == "" {
				if unit = of; inner >= 0 {
					unit = "loop.passes"
				}
			}
			if !updates.MatchString(s.Calls[k].Callee()) || unit != "" {
				continue
			}
			if unit = "loop.turns"; inner >= 0 {
				unit = "loop.passes"
			}
		}
	}
	return unit
}

// maxBody bounds how many statements of a loop are read.
const maxBody = 2000

// updates are calls that change the weights of a model.
var updates = regexp.MustCompile(`(^|\.)(backward|apply_updates|apply_gradients|apply_gradient|manual_backward|optimizer_step|train_step|train_on_batch)$`)

// outer returns the innermost loop around the statement all[i] in its function, or nil.
func outer(all []python.Statement, i int) *python.Statement {
	indent := all[i].Indent
	for j := i - 1; j >= max(0, i-maxBody) && indent > 0; j-- {
		s := &all[j]
		if s.Indent >= indent {
			continue
		}
		indent = s.Indent
		switch s.Kind {
		case python.For, python.While:
			return s
		case python.Def, python.Class:
			return nil
		}
	}
	return nil
}

// overBatches is whether the loop all[i] is in one over what something collects as it trains.
func overBatches(all []python.Statement, i int) bool {
	s := outer(all, i)
	return s != nil && s.Kind == python.For && s.Value.Kind == python.Name && batches.MatchString(strings.ToLower(s.Value.Text))
}

// batches is in the names of what gives a job its data as it trains.
var batches = regexp.MustCompile(`collector|loader|rollouts?|batches|stream|iterator`)
