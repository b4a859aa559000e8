package reproduce

import "fmt"

// Bands of the experiments of Kant. Its workload is not public: ours is made up
// after what the paper tells of it, and figures can agree in direction and in
// rough magnitude alone.

// roughly compares a figure: within half to double of the paper's.
func roughly(figure string, paper, ours float64, unit string) Row {
	return Row{Figure: figure, Paper: paper, Ours: ours, Unit: unit, Within: ours >= paper/2 && ours <= 2*paper, How: "half to double"}
}

// atLeast and atMost compare with what the paper says ours should be above or
// below, and hold it to limit.
func atLeast(figure string, paper, limit, ours float64, unit string) Row {
	return Row{Figure: figure, Paper: paper, Bound: "above", Ours: ours, Unit: unit, Within: ours >= limit, How: "at least " + number(limit) + " " + unit}
}

func atMost(figure string, paper, limit, ours float64, unit string) Row {
	return Row{Figure: figure, Paper: paper, Bound: "below", Ours: ours, Unit: unit, Within: ours <= limit, How: "at most " + number(limit) + " " + unit}
}

// withinPoints compares a figure that may be off by so many points.
func withinPoints(figure string, paper, points, ours float64, unit string) Row {
	return Row{
		Figure: figure, Paper: paper, Ours: ours, Unit: unit,
		Within: ours >= paper-points && ours <= paper+points, How: fmt.Sprintf("within %s points", number(points)),
	}
}
