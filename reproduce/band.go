package reproduce

import "fmt"

// The bands that a figure may have.

// said makes a row of a claim that the paper makes without a figure.
func (r Row) said(claim string) Row {
	r.Claim = claim
	return r
}

// asInputs marks rows that follow from how the workload is generated: they show that it is
// generated so, and do not count.
func asInputs(rows ...Row) []Row {
	for i := range rows {
		rows[i].Input = true
	}
	return rows
}

// within compares a figure that may be off by a share of theirs.
func within(figure string, theirs, ours, share float64, unit string) Row {
	how := "the same"
	if share > 0 {
		how = "within " + number(100*share) + " %"
	}
	return Row{
		Figure: figure, Paper: theirs, Ours: ours, Unit: unit, Within: near(ours, theirs, share), How: how,
		Low: new(theirs - share*theirs), High: new(theirs + share*theirs),
	}
}

// over and below compare a figure with a bound of the paper.
func over(figure string, bound, ours float64, unit string) Row {
	return Row{Figure: figure, Paper: bound, Bound: "above", Ours: ours, Unit: unit, Within: ours > bound, How: "above theirs", Low: &bound}
}

func below(figure string, bound, ours float64, unit string) Row {
	return Row{Figure: figure, Paper: bound, Bound: "below", Ours: ours, Unit: unit, Within: ours < bound, How: "below theirs", High: &bound}
}

// Kant's workload is not public: ours is generated after what the paper reports of
// it, and figures can agree in direction and in rough magnitude alone.

// roughly compares a figure: within half to double of the paper's.
func roughly(figure string, paper, ours float64, unit string) Row {
	return Row{
		Figure: figure, Paper: paper, Ours: ours, Unit: unit,
		Within: ours >= paper/2 && ours <= 2*paper, How: "half to double", Low: new(paper / 2), High: new(2 * paper),
	}
}

// atLeast and atMost compare with what the paper says ours should be above or
// below, and hold it to limit.
func atLeast(figure string, paper, limit, ours float64, unit string) Row {
	return Row{
		Figure: figure, Paper: paper, Bound: "above", Ours: ours, Unit: unit,
		Within: ours >= limit, How: "at least " + number(limit) + " " + unit, Low: &limit,
	}
}

func atMost(figure string, paper, limit, ours float64, unit string) Row {
	return Row{
		Figure: figure, Paper: paper, Bound: "below", Ours: ours, Unit: unit,
		Within: ours <= limit, How: "at most " + number(limit) + " " + unit, High: &limit,
	}
}

// withinPoints compares a figure that may be off by this many points.
func withinPoints(figure string, paper, points, ours float64, unit string) Row {
	return Row{
		Figure: figure, Paper: paper, Ours: ours, Unit: unit,
		Within: ours >= paper-points && ours <= paper+points, How: fmt.Sprintf("within %s points", number(points)),
		Low: new(paper - points), High: new(paper + points),
	}
}

// because returns the row with a note that explains its difference.
func (r Row) because(note string) Row {
	r.Note = note
	return r
}
