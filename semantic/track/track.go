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
	// kinds is how many kinds of readings are remembered, and kept how many of each.
	kinds = 64
	kept  = 200
)

// Tracker follows the log of a job. The zero value is ready.
type Tracker struct {
	r      reader
	series []series
	order  []uint64 // of the last readings, at least [recent] of them, the series
	lines  int64
	steps  bool // a line has named a step, or the time of one
	added  bool // not all readings are of lines

	heading choice // the epoch of the last line that says nothing else: of the steps after it that do not name theirs
}

// series is the readings of one print statement.
type series struct {
	id       uint64
	readings []Reading // the last ones, at least [kept] of them
	seen     int64     // at which line the last one was
}

// Line reads the next line of the log, and returns what it says, if anything.
func (t *Tracker) Line(line []byte) (Reading, bool) {
	var x Reading
	if !t.read(line, &x) {
		return Reading{}, false
	}
	t.add(x)
	return x, true
}

// read reads the next line into x, and returns whether it says anything.
func (t *Tracker) read(line []byte, x *Reading) bool {
	t.lines++
	if !t.r.read(line, x) {
		if t.r.heads {
			t.heading = t.r.epoch
		}
		return false
	}
	x.Line = t.lines - 1
	t.inEpochs(x)
	return true
}

// inEpochs takes the time of an epoch for that of a step as long as the log has said nothing about steps.
func (t *Tracker) inEpochs(x *Reading) {
	t.steps = t.steps || !math.IsNaN(x.Step) || !math.IsNaN(x.StepTime)
	if !t.steps {
		x.StepTime = x.EpochTime
	}
}

// Add adds a reading that something other than [Tracker.Line] found. Those are of one series.
func (t *Tracker) Add(x Reading) {
	t.lines = max(t.lines, x.Line+1)
	x.series, t.added = 1, true
	t.add(x)
}

func (t *Tracker) add(x Reading) {
	if t.heading.rank > 0 && math.IsNaN(x.Epoch) && !math.IsNaN(x.Step) {
		x.Epoch, x.Epochs = t.heading.value, t.heading.total
	}
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
	if s.readings = append(s.readings, x); len(s.readings) >= 2*kept {
		s.readings = slices.Delete(s.readings, 0, kept)
	}
	if t.order = append(t.order, x.series); len(t.order) >= 4*recent {
		t.order = slices.Delete(t.order, 0, 3*recent)
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
	epochs := !t.added && inEpochs(all)
	// 1. The readings of which there are most say where the job is; others, what these do not say. So the bar of a trainer gives the steps and their time, and
	// its summaries the loss.
	for _, readings := range all {
		x := readings[len(readings)-1]
		first(&p.Step, x.Step, func() { p.TotalSteps = x.TotalSteps })
		first(&p.Epoch, x.Epoch, func() { p.Epochs = x.Epochs })
		first(&p.StepTime, robust(readings, func(x *Reading) float64 { return x.StepTime }), nil)
		first(&p.Throughput, robust(readings, func(x *Reading) float64 { return x.Throughput }), func() { p.Unit = x.Unit })
		if math.IsNaN(p.Loss) && x.HasLoss && !p.NaNLoss {
			p.Loss, p.NaNLoss = x.Loss, math.IsNaN(x.Loss) || math.IsInf(x.Loss, 0)
		}
	}
	main := all[0]
	if i := slices.IndexFunc(all, func(s []*Reading) bool { return !math.IsNaN(s[len(s)-1].Step) }); i > 0 {
		main = all[i] // others print the loss alone
	}
	p.Readings = len(main)
	// 2. Lines that print no time may carry time stamps, or the time since a bar began.
	for _, readings := range all {
		first(&p.StepTime, between(readings, epochs, func(x *Reading) float64 { return x.Elapsed }), nil)
		first(&p.StepTime, between(readings, epochs, func(x *Reading) float64 { return x.At }), nil)
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
	if epochs {
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

// robust returns the median of a figure of readings, without those further from it than three times the median distance.
func robust(readings []*Reading, figure func(*Reading) float64) float64 {
	var vs []float64
	for _, x := range readings {
		if v := figure(x); !math.IsNaN(v) {
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

// between returns the median time for a step between readings that follow each other; for an epoch, if the log counts those alone.
func between(readings []*Reading, epochs bool, at func(*Reading) float64) float64 {
	count := func(x *Reading) float64 { return x.Step }
	if epochs {
		count = func(x *Reading) float64 { return x.Epoch }
	}
	var vs []float64
	for i := range readings[:len(readings)-1] {
		a, b := readings[i], readings[i+1]
		d := at(b) - at(a)
		if d < 0 && d > -86400 && at(a) < 86400 {
			d += 86400 // a clock without a date, past midnight
		}
		if steps := count(b) - count(a); steps > 0 && d > 0 {
			vs = append(vs, d/steps)
		}
	}
	if len(vs) < 3 {
		return math.NaN()
	}
	return median(vs)
}

// Read follows the whole log.
func Read(r io.Reader) (*Tracker, error) {
	t := new(Tracker)
	s := logtext.NewScanner(r)
	for s.Scan() {
		t.Line(s.Line())
	}
	return t, s.Err()
}

// ReadAll reads the whole log, and returns the readings of the job whose log it is, as [Own] does.
func ReadAll(r io.Reader) ([]*Reading, error) {
	var t Tracker
	var blocks [][]Reading // a long log has millions: they stay where they are
	var block []Reading    // the last one
	count := 0
	s := logtext.NewScanner(r)
	for s.Scan() {
		n := len(block)
		if n == cap(block) {
			block, n = make([]Reading, 0, min(1024, max(16, count))), 0
			blocks = append(blocks, block)
		}
		if block = block[:n+1]; t.read(s.Line(), &block[n]) {
			blocks[len(blocks)-1] = block
			count++
		} else {
			block = block[:n]
		}
	}
	all := make([]*Reading, 0, count)
	for _, block := range blocks {
		for i := range block {
			all = append(all, &block[i])
		}
	}
	return Own(all), s.Err()
}

// short is the size of a log that is read from its begin, where the names of a table's columns are.
const short = 1 << 20

// Tail follows the end of a log of size bytes, as far back as Progress looks. The numbers of its readings' lines count from there. It reads at
// most bound bytes. A short log is read whole.
func Tail(r io.ReaderAt, size, bound int64) (*Tracker, error) {
	if bound = min(bound, size); bound == size && size <= short {
		return Read(io.NewSectionReader(r, 0, size))
	}
	from := new(reader)
	type line struct {
		x       Reading
		heading choice
	}
	var found []line
	readings := 0
	err := logtext.Backward(io.NewSectionReader(r, size-bound, bound), bound, func(text []byte) bool {
		var x Reading
		switch {
		case from.read(text, &x):
			found = append(found, line{x: x})
			readings++
		case from.heads:
			found = append(found, line{heading: from.epoch})
		}
		return readings < recent
	})
	t := new(Tracker)
	for _, l := range slices.Backward(found) {
		if l.heading.rank > 0 {
			t.heading = l.heading
			continue
		}
		x := l.x
		x.Line = t.lines
		t.lines++
		t.inEpochs(&x)
		t.add(x)
	}
	return t, err
}
