package track

import (
	"cmp"
	"math"
	"slices"
)

// This file tells the lines of a job from those of other jobs that stand between them.

// order is how the readings of a series come after each other.
type order uint8

const (
	unclear order = iota // too few count steps
	rising               // at least four fifths are further than the one before, in a later epoch, at a later step, or later where none are counted
	mixed                // fewer: they are of several jobs
)

// counts reports whether x says which step or epoch it is of.
func (x *Reading) counts() bool { return !math.IsNaN(x.Step) || !math.IsNaN(x.Epoch) }

// timed reports whether x says how fast the job is.
func (x *Reading) timed() bool {
	return !math.IsNaN(x.StepTime) || !math.IsNaN(x.Throughput) || !math.IsNaN(x.EpochTime)
}

// orderOf returns in which order readings are, and whether there are so many that chance hardly ever brings as many into it.
func orderOf(readings []*Reading) (o order, sure bool) {
	up, down := 0, 0
	for i := range readings[1:] {
		a, b := readings[i], readings[i+1]
		switch {
		case b.Epoch > a.Epoch, !(b.Epoch < a.Epoch) && b.Step > a.Step:
			up++
		case b.Epoch < a.Epoch, b.Step < a.Step:
			down++
		case a.counts() && b.counts():
		case b.At > a.At:
			up++
		case b.At < a.At:
			down++
		}
	}
	switch {
	case up+down < 3:
		return unclear, false
	case up >= 4*down:
		return rising, up >= 4+2*down
	}
	return mixed, false
}

// place is how far the job is, by a reading: a number that rises from step to step; NaN if the line does not count any.
func (x *Reading) place() float64 {
	switch {
	case math.IsNaN(x.Step):
		if math.IsNaN(x.Epoch) {
			return x.At
		}
		return x.Epoch
	case math.IsNaN(x.Epoch) || x.Epoch != math.Trunc(x.Epoch):
		return x.Step
	case x.TotalSteps > 0:
		return x.Epoch*x.TotalSteps + x.Step
	}
	return x.Epoch*1e9 + x.Step
}

// chain returns those readings of a series that follow each other as the steps of one job do, where lines of other jobs with the same program stand
// between them. Nil: none do.
//
// A job prints its steps once each, in order, and mostly each as far from the one before as that from its own. So the longest chain is searched of
// readings of which each is one stride further than the one before, and else the longest of readings that rise. Chains that chance makes are as long in the
// opposite order of the log: one counts if it is more than twice as long as the longest there.
func chain(readings []*Reading) []*Reading {
	at := make([]float64, len(readings))
	for i := range readings {
		at[i] = readings[i].place()
	}
	reversed := slices.Clone(at)
	slices.Reverse(reversed)
	var best []int
	for _, d := range strides(at) {
		if c := byStride(at, d); len(c) > len(best) && len(c) >= leastChain && len(c) > 2*len(byStride(reversed, d)) {
			best = c
		}
	}
	if c := rise(at); len(c) > 2*len(best) && len(c) >= leastRise && len(c) > 2*len(rise(reversed)) {
		best = c
	}
	if best == nil {
		return nil
	}
	out := make([]*Reading, len(best))
	for i, n := range best {
		out[i] = readings[n]
	}
	return out
}

// leastChain is how many readings a chain of one stride has at least, and leastRise one of several.
const (
	leastChain = 8
	leastRise  = 10
)

// strides returns the few distances that are the most frequent between a place and those that come soon after it, the most frequent first.
func strides(at []float64) []float64 {
	const look, most, tried = 24, 4, 20_000
	count := map[float64]int{}
	for i := max(0, len(at)-tried); i < len(at); i++ {
		for j := i + 1; j < min(len(at), i+look); j++ {
			if d := at[j] - at[i]; d > 0 {
				count[d]++
			}
		}
	}
	var all []float64
	for d, n := range count {
		if n >= leastChain-1 {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b float64) int { return cmp.Or(count[b]-count[a], cmp.Compare(a, b)) })
	return all[:min(len(all), most)]
}

// byStride returns the longest chain of places of which each is d further than the one before, as their numbers.
func byStride(at []float64, d float64) []int {
	length, before := make([]int, len(at)), make([]int, len(at))
	ends := map[float64]int{} // of the longest chain that ends at a place, the number
	best := -1
	for i, p := range at {
		if math.IsNaN(p) {
			continue
		}
		length[i], before[i] = 1, -1
		if j, ok := ends[p-d]; ok {
			length[i], before[i] = length[j]+1, j
		}
		if j, ok := ends[p]; !ok || length[i] > length[j] {
			ends[p] = i
		}
		if best < 0 || length[i] > length[best] {
			best = i
		}
	}
	return back(before, best)
}

// rise returns the longest chain of places that rise, as their numbers.
func rise(at []float64) []int {
	before := make([]int, len(at))
	var ends []int // by length - 1, the number of the least place at which a chain of that length ends
	for i, p := range at {
		if math.IsNaN(p) {
			continue
		}
		n, _ := slices.BinarySearchFunc(ends, p, func(j int, p float64) int { return cmp.Compare(at[j], p) })
		if before[i] = -1; n > 0 {
			before[i] = ends[n-1]
		}
		if n == len(ends) {
			ends = append(ends, i)
		} else {
			ends[n] = i
		}
	}
	if len(ends) == 0 {
		return nil
	}
	return back(before, ends[len(ends)-1])
}

// back follows a chain from its end, and returns it in order.
func back(before []int, end int) []int {
	var out []int
	for ; end >= 0; end = before[end] {
		out = append(out, end)
	}
	slices.Reverse(out)
	return out
}

// own returns of series, each of one print statement, the readings that are the job's own; of those that are not, nil. A log may have lines of other jobs, such as those
// that a launcher prints; those do not follow each other, as the steps of a job do. If there are such lines, a series counts only if it does: one whose readings
// say how fast the job is, or of which there are few.
func own(series [][]*Reading) {
	orders, proven := make([]order, len(series)), make([]bool, len(series))
	several, longest := false, 0
	for i, readings := range series {
		orders[i], proven[i] = orderOf(readings)
		several = several || orders[i] == mixed
		if proven[i] && readings[0].timed() {
			longest = max(longest, len(readings))
		}
	}
	if !several {
		return
	}
	found := longest > 0
	for i, readings := range series {
		if orders[i] != mixed {
			continue
		}
		series[i] = nil
		if c := chain(readings); len(c) > longest {
			series[i], proven[i] = c, true
			found = found || c[0].timed()
		}
	}
	for i, readings := range series {
		if len(readings) > 0 && !proven[i] && (readings[0].timed() || found || len(readings) < 10) {
			series[i] = nil
		}
	}
}

// sinceBegin finds the series whose lines print the time since the epoch or the job began, and do not say so: it grows as the steps do, or the epochs. That is
// no time of a step.
func sinceBegin(series [][]*Reading) {
	ofSteps := func(x *Reading) (epoch, at, took float64) { return x.Epoch, x.Step, x.StepTime }
	ofEpochs := func(x *Reading) (epoch, at, took float64) { return 0, x.Epoch, x.EpochTime }
	for _, readings := range series {
		if len(readings) > 0 && readings[0].anyTime && grows(readings, ofSteps) {
			for _, x := range readings {
				x.Elapsed, x.StepTime, x.timeName = x.StepTime, math.NaN(), 0
			}
		}
		if len(readings) > 0 && grows(readings, ofEpochs) {
			for _, x := range readings {
				if x.StepTime == x.EpochTime {
					x.StepTime, x.timeName = math.NaN(), 0
				}
				x.Elapsed, x.EpochTime = x.EpochTime, math.NaN()
			}
		}
	}
}

// grows reports whether a time grows as a count does: with it wherever that rises, and over four readings or more of an epoch by half as much to twice as much.
func grows(readings []*Reading, of func(*Reading) (epoch, at, took float64)) bool {
	const least = 4
	found := false
	for from, i := 0, 1; i <= len(readings); i++ {
		epoch, at, took := of(readings[i-1])
		if i < len(readings) {
			nextEpoch, next, longer := of(readings[i])
			sameEpoch := !(nextEpoch < epoch || nextEpoch > epoch)
			switch {
			case sameEpoch && next > at && longer > took:
				continue
			case sameEpoch && next > at:
				return false
			}
		}
		_, first, shortest := of(readings[from])
		if counted, grown := at/max(first, 1), took/shortest; i-from >= least && counted > 1.5 {
			if grown < counted/2 || grown > counted*2 {
				return false
			}
			found = true
		}
		from = i
	}
	return found
}

// Own returns the readings of the job whose log it is, in order, and of several figures that the log calls by one name the one that the most telling lines have. All are
// the readings of the log in order; Own changes them, and returns a part of all.
func Own(all []*Reading) []*Reading {
	series := bySeries(all)
	for _, x := range all {
		x.own = false
	}
	own(series)
	sinceBegin(series)
	inEpochs(series)
	time := speaker(series, func(x *Reading) (float64, uint64) { return x.StepTime, x.timeName })
	rate := speaker(series, func(x *Reading) (float64, uint64) { return x.Throughput, x.rateName })
	for _, readings := range series {
		for _, x := range readings {
			if x.own = true; time != nil && x.timeName != time.timeName {
				x.StepTime = math.NaN()
			}
			if rate != nil && x.rateName != rate.rateName {
				x.Throughput, x.Unit = math.NaN(), ""
			}
		}
	}
	return slices.DeleteFunc(all, func(x *Reading) bool { return !x.own })
}

// bySeries returns the readings of each series, in order.
func bySeries(all []*Reading) [][]*Reading {
	at := map[uint64]int32{}
	of, counts := make([]int32, len(all)), []int{}
	for i, x := range all {
		if i > 0 && x.series == all[i-1].series {
			of[i] = of[i-1]
		} else if n, ok := at[x.series]; ok {
			of[i] = n
		} else {
			of[i] = int32(len(counts))
			at[x.series] = of[i]
			counts = append(counts, 0)
		}
		counts[of[i]]++
	}
	series := make([][]*Reading, len(counts))
	for i, n := range counts {
		series[i] = make([]*Reading, 0, n)
	}
	for i, x := range all {
		series[of[i]] = append(series[of[i]], x)
	}
	return series
}

// speaker returns a reading of the series to believe about a figure, where the log has several of them under different names that are more than a tenth apart: of the names of
// which there are at least half as many readings as of another, that on the lines which tell most. Nil: there is one name, or all agree.
func speaker(series [][]*Reading, figure func(*Reading) (float64, uint64)) *Reading {
	type voice struct {
		name     uint64
		at       *Reading
		tells    int // how much at does
		count    int
		readings []*Reading // the last ones
	}
	var all []*voice
	of := map[uint64]*voice{}
	for _, readings := range series {
		var v *voice
		for _, x := range readings {
			value, name := figure(x)
			if math.IsNaN(value) {
				continue
			}
			if v == nil || v.name != name {
				if v = of[name]; v == nil {
					v = &voice{name: name}
					of[name] = v
					all = append(all, v)
				}
			}
			if n := x.tells(); v.at == nil || n > v.tells {
				v.at, v.tells = x, n
			}
			v.count++
			if v.readings = append(v.readings, x); len(v.readings) > 4*last {
				v.readings = slices.Delete(v.readings, 0, 3*last)
			}
		}
	}
	if len(all) < 2 {
		return nil
	}
	most, low, high := 0, math.Inf(1), math.Inf(-1)
	for _, a := range all {
		v := robust(a.readings[max(0, len(a.readings)-last):], func(x *Reading) float64 { v, _ := figure(x); return v })
		most, low, high = max(most, a.count), min(low, v), max(high, v)
	}
	if high <= low*1.1 {
		return nil
	}
	var best *voice
	for _, a := range all {
		if 2*a.count >= most && (best == nil || a.tells > best.tells || a.tells == best.tells && a.count > best.count) {
			best = a
		}
	}
	return best.at
}

// tells is how many of the things that lines of progress say x says.
func (x *Reading) tells() int {
	n := 0
	for _, v := range [...]float64{x.Step, x.TotalSteps, x.Epoch, x.StepTime, x.Throughput} {
		if !math.IsNaN(v) {
			n++
		}
	}
	if x.HasLoss {
		n++
	}
	return n
}

// inEpochs takes the epochs of a job that prints nothing about steps for its steps, and returns whether it prints nothing about them.
func inEpochs(series [][]*Reading) bool {
	ofEpoch := func(x *Reading) bool { return x.StepTime == x.EpochTime }
	inSteps := func(x *Reading) bool { return !math.IsNaN(x.Step) || !math.IsNaN(x.StepTime) && !ofEpoch(x) }
	if slices.ContainsFunc(series, func(readings []*Reading) bool { return slices.ContainsFunc(readings, inSteps) }) {
		for _, readings := range series {
			for _, x := range readings {
				if ofEpoch(x) {
					x.StepTime = math.NaN()
				}
			}
		}
		return false
	}
	for _, readings := range series {
		for _, x := range readings {
			if math.IsNaN(x.StepTime) {
				x.StepTime = x.EpochTime
			}
		}
	}
	return true
}

// byWeight returns of each series the last readings that are the job's own. First come those that follow each other, as the steps of a job do, then
// those that say how fast the job is, then those with most readings.
func (t *Tracker) byWeight() [][]*Reading {
	order := t.order[max(0, len(t.order)-recent):]
	count := map[uint64]int{}
	for _, id := range order {
		count[id]++
	}
	var all [][]*Reading
	for i := range t.series {
		s := &t.series[i]
		if n := count[s.id]; n > 0 && (n*50 >= len(order) || n >= last) { // else such as the bar of a download
			all = append(all, pointers(slices.Clone(s.readings)))
		}
	}
	own(all)
	sinceBegin(all)
	all = slices.DeleteFunc(all, func(readings []*Reading) bool { return len(readings) == 0 })
	weight := map[*Reading]int{}
	for i, readings := range all {
		n := min(len(readings), recent)
		if o, _ := orderOf(readings); o == rising {
			n += 2 * recent
		}
		if readings[0].timed() {
			n += recent
		}
		all[i] = readings[max(0, len(readings)-last):]
		weight[all[i][0]] = n
	}
	slices.SortStableFunc(all, func(a, b []*Reading) int { return weight[b[0]] - weight[a[0]] })
	return all
}

// pointers returns where readings are.
func pointers(readings []Reading) []*Reading {
	out := make([]*Reading, len(readings))
	for i := range readings {
		out[i] = &readings[i]
	}
	return out
}
