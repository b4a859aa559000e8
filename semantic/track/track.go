// Package track reads the progress of training and serving jobs from their logs (SchedMate, §3.2): the step, the time it takes, the
// throughput, the loss. It needs no pattern for each framework: a line is split into numbers with what stands before and behind them,
// and words such as "iter", "s/it" and "loss" say what a number is.
//
// A log that says nothing about progress gives no figures; a wrong one would be worse.
package track

import (
	"io"
	"math"
	"slices"

	"github.com/muster-sched/muster/semantic/logtext"
)

const (
	// last is how many readings of a kind a figure rests on.
	last = 20
	// recent is how many readings say of which kind there are most.
	recent = 200
	// kinds is how many kinds of readings are remembered.
	kinds = 64
)

// Tracker follows the log of a job. The zero value is ready.
type Tracker struct {
	r      reader
	series []series
	order  []uint64 // of the last readings, the series
	lines  int64
	steps  bool // a line has named a step, or the time of one
}

// series is the readings of one print statement.
type series struct {
	id       uint64
	readings []Reading // the last ones
	seen     int64     // at which line the last one was
}

// Line reads the next line of the log, and returns what it says, if anything.
func (t *Tracker) Line(line []byte) (Reading, bool) {
	t.lines++
	x, ok := t.r.read(line)
	if !ok {
		return x, false
	}
	x.Line = t.lines - 1
	t.inEpochs(&x)
	t.add(x)
	return x, true
}

// inEpochs takes the epochs of a job that prints nothing about steps for its steps.
func (t *Tracker) inEpochs(x *Reading) {
	t.steps = t.steps || !math.IsNaN(x.Step) || !math.IsNaN(x.StepTime)
	if !t.steps {
		x.StepTime = x.EpochTime
	}
}

// Add adds a reading that something other than [Tracker.Line] found. Those are of one series.
func (t *Tracker) Add(x Reading) {
	t.lines = max(t.lines, x.Line+1)
	x.series, t.steps = 1, true
	t.add(x)
}

func (t *Tracker) add(x Reading) {
	i := slices.IndexFunc(t.series, func(s series) bool { return s.id == x.series })
	if i < 0 {
		if i = len(t.series); i < kinds {
			t.series = append(t.series, series{})
		} else {
			i = 0
			for j := range t.series {
				if t.series[j].seen < t.series[i].seen {
					i = j
				}
			}
		}
		t.series[i] = series{id: x.series}
	}
	s := &t.series[i]
	s.seen = t.lines
	if s.readings = append(s.readings, x); len(s.readings) > last {
		s.readings = slices.Delete(s.readings, 0, 1)
	}
	if t.order = append(t.order, x.series); len(t.order) > recent {
		t.order = slices.Delete(t.order, 0, 1)
	}
}

// Progress is where a job stands, by the last lines of its log. A figure that they do not say is NaN.
type Progress struct {
	Step, TotalSteps float64
	Epoch, Epochs    float64
	StepTime         float64 // seconds: the median, without outliers
	Throughput       float64 // in Unit
	Unit             string
	Loss             float64 // the last one
	NaNLoss          bool    // the last loss is not a finite number
	Left             float64 // seconds until the last step, if the steps in all are known
	Interval         float64 // seconds between two readings: a job that prints none for much longer may be stuck
	Readings         int     // on which this rests; 0 if the log says nothing
}

// Progress returns where the job stands.
func (t *Tracker) Progress() Progress {
	nan := math.NaN()
	p := Progress{Step: nan, TotalSteps: nan, Epoch: nan, Epochs: nan, StepTime: nan, Throughput: nan, Loss: nan, Left: nan, Interval: nan}
	all := t.byWeight()
	if len(all) == 0 {
		return p
	}
	// 1. The readings of which there are most say where the job is; others, what these do not say. So the bar of a trainer gives the steps and their time, and
	// its summaries the loss.
	for _, s := range all {
		x := &s.readings[len(s.readings)-1]
		first(&p.Step, x.Step, func() { p.TotalSteps = x.TotalSteps })
		first(&p.Epoch, x.Epoch, func() { p.Epochs = x.Epochs })
		first(&p.StepTime, robust(s.readings, func(x *Reading) float64 { return x.StepTime }), nil)
		first(&p.Throughput, robust(s.readings, func(x *Reading) float64 { return x.Throughput }), func() { p.Unit = x.Unit })
		if math.IsNaN(p.Loss) && x.HasLoss && !p.NaNLoss {
			p.Loss, p.NaNLoss = x.Loss, math.IsNaN(x.Loss) || math.IsInf(x.Loss, 0)
		}
	}
	main := all[0].readings
	if i := slices.IndexFunc(all, func(s *series) bool { return !math.IsNaN(s.readings[len(s.readings)-1].Step) }); i > 0 {
		main = all[i].readings // others print the loss alone
	}
	p.Readings = len(main)
	// 2. Lines that print no time may carry time stamps, or the time since a bar began.
	for _, s := range all {
		first(&p.StepTime, between(s.readings, func(x *Reading) float64 { return x.At }), nil)
		first(&p.StepTime, between(s.readings, func(x *Reading) float64 { return x.Elapsed }), nil)
	}
	if n := len(main); n > 1 {
		steps := make([]float64, 0, n)
		for i := range main[1:] {
			if d := main[i+1].Step - main[i].Step; d > 0 {
				steps = append(steps, d)
			}
		}
		p.Interval = median(steps) * p.StepTime
	}
	p.Left = (p.TotalSteps - p.Step) * p.StepTime
	if !t.steps {
		p.Left = (p.Epochs - p.Epoch) * p.StepTime
	} else if p.Epochs >= p.Epoch && p.Epoch > 0 {
		p.Left += (p.Epochs - p.Epoch) * p.TotalSteps * p.StepTime
	}
	return p
}

// leastSilence is how many seconds without a reading are no stall, whatever is usual: output is buffered, and checkpoints are written.
const leastSilence = 10

// Stalled reports whether a job that printed its last reading this many seconds ago has printed none for k times as long as usual. If the log
// does not say how long a step takes, that is not known, and false.
func (p *Progress) Stalled(silent, k float64) bool { return silent > max(leastSilence, k*p.Interval) }

// first sets a figure that is not known yet.
func first(to *float64, v float64, then func()) {
	if math.IsNaN(*to) && !math.IsNaN(v) {
		if *to = v; then != nil {
			then()
		}
	}
}

// byWeight returns the series of the last readings, without those that contradict themselves. First come those that follow each other, as the steps of a job do, then
// those that say how fast the job is, then those with most readings.
func (t *Tracker) byWeight() []*series {
	count := map[uint64]int{}
	for _, id := range t.order {
		count[id]++
	}
	var out []*series
	weight := map[*series]int{}
	for i := range t.series {
		s := &t.series[i]
		n := count[s.id]
		if n == 0 || n*50 < len(t.order) && n < last { // such as the bar of a download
			continue
		}
		switch orderOf(s.readings) {
		case mixed:
			continue
		case rising:
			n += 2 * recent
		}
		if s.readings[0].timed() {
			n += recent
		}
		weight[s] = n
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(a, b *series) int { return weight[b] - weight[a] })
	return out
}

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
func (x *Reading) timed() bool { return !math.IsNaN(x.StepTime) || !math.IsNaN(x.Throughput) }

func orderOf(readings []Reading) order {
	up, down := 0, 0
	for i := range readings[1:] {
		a, b := &readings[i], &readings[i+1]
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
		return unclear
	case up >= 4*down:
		return rising
	}
	return mixed
}

// Own returns the readings of the job whose log it is, in order. A log may have lines of other jobs, such as those that a launcher prints; those do not follow each
// other, as the steps of a job do. If there are such lines, readings of which too few count steps to tell are left out, too: all of them if others follow each other and
// say how fast the job is, else those of which there are fewer than ten by the same names.
func Own(all []Reading) []Reading {
	by := map[uint64][]Reading{}
	for _, x := range all {
		by[x.series] = append(by[x.series], x)
	}
	orders := map[uint64]order{}
	several, sure := false, false
	for id, readings := range by {
		orders[id] = orderOf(readings)
		several = several || orders[id] == mixed
		sure = sure || orders[id] == rising && len(readings) >= 6 && readings[0].timed()
	}
	return slices.DeleteFunc(slices.Clone(all), func(x Reading) bool {
		return orders[x.series] == mixed || several && orders[x.series] == unclear && (sure && x.timed() || len(by[x.series]) < 10)
	})
}

// robust returns the median of a figure of readings, without those further from it than three times the median distance.
func robust(readings []Reading, figure func(*Reading) float64) float64 {
	var vs []float64
	for i := range readings {
		if v := figure(&readings[i]); !math.IsNaN(v) {
			vs = append(vs, v)
		}
	}
	m := median(vs)
	distance := make([]float64, len(vs))
	for i, v := range vs {
		distance[i] = math.Abs(v - m)
	}
	if mad := median(distance); mad > 0 {
		vs = slices.DeleteFunc(vs, func(v float64) bool { return math.Abs(v-m) > 3*mad })
	}
	return median(vs)
}

// median returns NaN of nothing.
func median(vs []float64) float64 {
	if len(vs) == 0 {
		return math.NaN()
	}
	vs = slices.Clone(vs)
	slices.Sort(vs)
	if n := len(vs); n%2 == 0 {
		return (vs[n/2-1] + vs[n/2]) / 2
	}
	return vs[len(vs)/2]
}

// between returns the median time for a step between readings that follow each other.
func between(readings []Reading, at func(*Reading) float64) float64 {
	var vs []float64
	for i := range readings[:len(readings)-1] {
		a, b := &readings[i], &readings[i+1]
		d := at(b) - at(a)
		if d < 0 && d > -86400 && at(a) < 86400 {
			d += 86400 // a clock without a date, past midnight
		}
		if steps := b.Step - a.Step; steps > 0 && d > 0 {
			vs = append(vs, d/steps)
		}
	}
	if len(vs) < 3 {
		return math.NaN()
	}
	return median(vs)
}

// Read follows the whole log, and calls each, if it is not nil, with every reading.
func Read(r io.Reader, each func(Reading)) (*Tracker, error) {
	t := new(Tracker)
	s := logtext.NewScanner(r)
	for s.Scan() {
		if x, ok := t.Line(s.Line()); ok && each != nil {
			each(x)
		}
	}
	return t, s.Err()
}

// short is the size of a log that is read from its begin, where the names of a table's columns are.
const short = 1 << 20

// Tail follows the end of a log of size bytes, as far back as Progress looks. The numbers of its readings' lines count from there. It reads at
// most bound bytes. A short log is read whole.
func Tail(r io.ReaderAt, size, bound int64) (*Tracker, error) {
	if bound = min(bound, size); bound == size && size <= short {
		return Read(io.NewSectionReader(r, 0, size), nil)
	}
	from := new(reader)
	var found []Reading
	err := logtext.Backward(io.NewSectionReader(r, size-bound, bound), bound, func(line []byte) bool {
		if x, ok := from.read(line); ok {
			found = append(found, x)
		}
		return len(found) < recent
	})
	t := new(Tracker)
	for _, x := range slices.Backward(found) {
		x.Line = t.lines
		t.lines++
		t.inEpochs(&x)
		t.add(x)
	}
	return t, err
}
