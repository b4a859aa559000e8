// Package runlog writes a run to a folder, and reads it back: the inputs, the decisions
// and the results.
package runlog

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/report"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

// Writer is a [sim.Watcher] that measures a run, hashes its decisions and, if it
// has a folder, writes them there. Exactly one of Close and Abort must be
// called.
type Writer struct {
	measure   *metrics.Collector
	decisions *Decisions
	series    series[metrics.Sample]
	out       *output // nil without a folder
}

// output is what is written to the folder during the run.
type output struct {
	folder    *Folder
	sub       string // the folder in it, with a slash; empty for itself
	shared    bool   // the folder is committed or discarded by another
	jobs      *jobTable
	nodes     nodeTable
	submitted *workload.JobWriter
	zip       *behind // of submitted
	cluster   *workload.Cluster
	frames    series[metrics.Frame]
	fair      series[metrics.FairRow]
}

var (
	_ sim.Watcher = (*Writer)(nil)
	_ sim.Mover   = (*Writer)(nil)
	_ sim.Lender  = (*Writer)(nil)
)

// Create begins the run of a workload on c. From and To of window bound the averages over
// time; its Levels are c's. If dir is empty, nothing is written. The error is bad input
// (see [workload.IsBadInput]) if dir cannot be used (see [OpenFolder]). What Muster wrote
// there before is replaced when the run is complete.
func Create(dir string, c *workload.Cluster, window metrics.Options) (*Writer, error) {
	if dir == "" {
		w := newWriter(c, window)
		w.decisions = NewDecisions(nil)
		return w, nil
	}
	f, err := OpenFolder(dir)
	if err != nil {
		return nil, err
	}
	w, err := f.CreateRun("", c, window)
	if err != nil {
		return nil, errors.Join(err, f.Discard())
	}
	w.out.shared = false
	return w, nil
}

// CreateRun begins a run like Create, in a folder of that name in f, or in f itself if
// the name is empty. After it is closed, Commit puts it in place.
func (f *Folder) CreateRun(name string, c *workload.Cluster, window metrics.Options) (*Writer, error) {
	w := newWriter(c, window)
	w.out = &output{
		folder: f, shared: true, nodes: nodeTable{seen: map[string]bool{}}, cluster: c,
		frames: series[metrics.Frame]{most: maxFrames, interval: framesEvery},
		fair:   series[metrics.FairRow]{most: maxFair, interval: fairEvery},
	}
	if name != "" {
		w.out.sub = name + "/"
	}
	return w, w.open(c)
}

func newWriter(c *workload.Cluster, window metrics.Options) *Writer {
	window.Levels, window.Queues = len(c.Levels), c.Queues
	return &Writer{measure: metrics.New(window), series: series[metrics.Sample]{most: maxRows, interval: rowsEvery}}
}

// open creates the files that grow with the run, and those that are known.
func (w *Writer) open(c *workload.Cluster) error {
	for _, name := range allFiles {
		if err := w.out.folder.Claim(w.out.sub + name); err != nil {
			return err
		}
	}
	if err := w.out.write(Cluster, func(out io.Writer) error { return workload.WriteCluster(out, *c) }); err != nil {
		return err
	}
	if len(c.Queues) > 0 {
		err := w.out.write(Queues, func(out io.Writer) error { return writeQueues(out, c.Queues) })
		if err != nil {
			return err
		}
	}
	if err := w.out.openTables(); err != nil {
		return err
	}
	log, err := w.out.create(Log)
	if err != nil {
		return err
	}
	w.decisions = NewDecisions(log)
	return nil
}

func (o *output) create(name string) (io.Writer, error) { return o.folder.Create(o.sub + name) }

func (o *output) write(name string, fill func(io.Writer) error) error {
	return o.folder.Write(o.sub+name, fill)
}

func (o *output) openTables() error {
	submitted, err := o.create(Workload)
	if err != nil {
		return err
	}
	o.zip = newBehind(newZip(submitted))
	o.submitted = workload.NewJobWriter(o.zip)
	jobs, err := o.create(Jobs)
	if err != nil {
		return err
	}
	o.jobs, err = newJobTable(jobs)
	return err
}

// Sample returns the state of the cluster after the last event, for progress.
func (w *Writer) Sample() metrics.Sample { return w.measure.Sample() }

// Series returns the state over time up to now, as timeseries.csv has it, with
// or without a folder.
func (w *Writer) Series() []metrics.Sample {
	last := w.measure.Sample()
	w.series.until(last.T, w.measure.Sample)
	rows := append(slices.Clone(w.series.rows), last)
	for i := range w.series.rows {
		rows[i].T = core.Time(i) * w.series.interval
	}
	return rows
}

// until takes the samples due before t.
func (w *Writer) until(t core.Time) {
	w.series.until(t, w.measure.Sample)
	if w.out != nil {
		w.out.frames.until(t, w.measure.Frame)
		w.out.fair.until(t, w.measure.Fair)
	}
}

// history returns the frames up to now.
func (w *Writer) history() metrics.History {
	end := w.measure.Sample().T
	w.until(end)
	return metrics.History{
		Interval: w.out.frames.interval, Frames: append(w.out.frames.rows, w.measure.Frame()),
		End: end, Queues: w.measure.Queues(), Shapes: w.measure.Shapes(),
	}
}

// Lines returns how many decisions were written.
func (w *Writer) Lines() int64 { return w.decisions.Lines() }

// Node implements [sim.Sink].
func (w *Writer) Node(t core.Time, n *core.Node, up bool) error {
	w.until(t)
	if err := w.measure.Node(t, n, up); err != nil || w.out == nil {
		return err
	}
	return w.out.node(t, n, up, w.decisions.Lines())
}

// node adds to nodes.csv, which is created when there is something to say.
func (o *output) node(t core.Time, n *core.Node, up bool, after int64) error {
	if !o.nodes.tells(n, up) {
		return nil
	}
	if o.nodes.out == nil {
		file, err := o.create(Nodes)
		if err != nil {
			return err
		}
		o.nodes.begin(file)
	}
	return o.nodes.add(t, n, up, after)
}

// Submitted implements [sim.Sink].
func (w *Writer) Submitted(t core.Time, j *sim.Live) error {
	w.until(t)
	if err := w.measure.Submitted(t, j); err != nil || w.out == nil {
		return err
	}
	return w.out.submitted.Write(&j.Job)
}

// Bound implements [sim.Sink].
func (w *Writer) Bound(t core.Time, j *sim.Live, pods []core.Placement, why core.Reason) error {
	w.until(t)
	for i := range pods {
		w.decisions.Bind(t, j.Name, &pods[i], why.String())
	}
	return w.measure.Bound(t, j, pods, why)
}

// Released implements [sim.Sink].
func (w *Writer) Released(t core.Time, j *sim.Live, pods []core.Placement, why sim.Release, by sim.Eviction) error {
	w.until(t)
	for i := range pods {
		w.decisions.Release(t, j.Name, &pods[i], why.String(), by)
	}
	return w.measure.Released(t, j, pods, why, by)
}

// Moving implements [sim.Mover].
func (w *Writer) Moving(t core.Time, j *sim.Live, to core.Placement, why core.Reason, forJob string) error {
	w.until(t)
	w.decisions.Migrate(t, j.Name, &to, why.String(), forJob)
	return w.measure.Moving(t, j, to, why, forJob)
}

// MoveOver implements [sim.Mover].
func (w *Writer) MoveOver(t core.Time, j *sim.Live, free core.Placement, to *core.Placement) error {
	w.until(t)
	why := sim.MoveFailed
	if to != nil {
		why = sim.Migrated
	}
	w.decisions.Release(t, j.Name, &free, why.String(), sim.Eviction{})
	return w.measure.MoveOver(t, j, free, to)
}

// Standby implements [sim.Lender].
func (w *Writer) Standby(t core.Time, j *sim.Live, pod core.Placement) error {
	w.until(t)
	w.decisions.Standby(t, j.Name, &pod)
	return w.measure.Standby(t, j, pod)
}

// Recovered implements [sim.Healer].
func (w *Writer) Recovered(t core.Time, j *sim.Live, what sim.Recovered) error {
	w.until(t)
	w.decisions.Recovered(t, j.Name, what)
	return w.measure.Recovered(t, j, what)
}

// Resumed implements [sim.Lender].
func (w *Writer) Resumed(t core.Time, j *sim.Live, pod core.Placement, told core.Time) error {
	w.until(t)
	w.decisions.Resume(t, j.Name, &pod, told)
	return w.measure.Resumed(t, j, pod, told)
}

// Ended implements [sim.Sink].
func (w *Writer) Ended(t core.Time, j *sim.Live, rejected *sim.Rejection) error {
	w.until(t)
	known, ok := w.measure.Job(t, j)
	if err := w.measure.Ended(t, j, rejected); err != nil || w.out == nil || !ok {
		return err
	}
	outcome := j.Outcome.String()
	if rejected != nil {
		outcome = "rejected"
		known.Reject(t, rejected)
	}
	return w.out.jobs.add(j, &known, t, outcome)
}

// Passed implements [sim.Watcher].
func (w *Writer) Passed(t core.Time, passes int, inquire func() sim.Inquiry, last bool) {
	if w.out != nil {
		w.measure.Passed(t, passes, inquire, last)
	}
}

// Facts are what the caller knows about a run.
type Facts struct {
	Policy string
	// Rules is nil if they are not known.
	Rules *metrics.Rules
	Seed  uint64
	// Cluster and Workload are what the user called the inputs.
	Cluster, Workload string
	// Decisions is how many decisions the engine made in Wall time.
	Decisions int64
	Wall      time.Duration
	// Interrupted is set if the run was stopped before its end.
	Interrupted bool
	Defrag      core.DefragTotals
	// Forecast compares HP demand with its forecast, for a policy that forecasts it with a Period.
	Forecast []sim.HPSample
	Period   core.Time
	// Grace is how long evicted pods take at most to leave.
	Grace core.Time
	// Failures is nil if no job could fail.
	Failures *sim.FailureStats
	// CPU is nil if the run did not measure it.
	CPU *sim.CPUBesideGPU
	// Packed is nil if no job could be packed.
	Packed *sim.Packed
	// Trained counts jobs whose training was measured.
	Trained *sim.Trained
}

// Close ends the run, completes its files and returns the summary. A folder that only
// this run uses is committed; after an error it is as it was before the run.
func (w *Writer) Close(f Facts) (metrics.Summary, error) {
	sum, err := w.decisions.Close()
	s := w.measure.Summary()
	s.DecisionSHA256 = sum
	f.fill(&s)
	if w.out == nil {
		return s, err
	}
	if err == nil {
		err = w.complete(s, f.Forecast)
	}
	if err != nil {
		return s, errors.Join(err, w.discard())
	}
	if w.out.shared {
		return s, nil
	}
	return s, w.out.folder.Commit()
}

// Abort ends a run that failed. A folder that only this run uses is discarded, and its
// old contents stay.
func (w *Writer) Abort() error {
	w.decisions.Close()
	if w.out == nil {
		return nil
	}
	return w.discard()
}

func (w *Writer) discard() error {
	w.out.zip.Close() // what it says is of a file that goes
	if w.out.shared {
		return nil
	}
	return w.out.folder.Discard()
}

func (f *Facts) fill(s *metrics.Summary) {
	s.Policy, s.Rules, s.Seed, s.Interrupted = f.Policy, f.Rules, f.Seed, f.Interrupted
	s.Cluster, s.Workload = f.Cluster, f.Workload
	s.WallSeconds = f.Wall.Seconds()
	s.Decisions = f.Decisions
	s.Defragmentation = metrics.NewDefragmentation(f.Defrag)
	s.HPForecast = metrics.NewHPForecast(f.Forecast, f.Period)
	if f.Wall > 0 {
		s.DecisionsPerSecond = float64(f.Decisions) / f.Wall.Seconds()
	}
	if s.Standby != nil {
		s.Standby.Bound = f.Grace.Seconds()
	}
	s.PeakRSSMiB = peakRSSMiB()
	s.CPU, s.Failures, s.Packed, s.Trained = f.CPU, f.Failures, f.Packed, f.Trained
}

// complete writes what is only known at the end.
func (w *Writer) complete(s metrics.Summary, forecast []sim.HPSample) error {
	if err := w.liveJobs(); err != nil {
		return err
	}
	if err := w.out.flush(); err != nil {
		return err
	}
	rows := w.Series()
	err := w.out.write(Timeseries, func(out io.Writer) error { return writeSeries(out, rows) })
	if err != nil {
		return err
	}
	if len(forecast) > 0 {
		if err := w.out.write(Forecast, func(out io.Writer) error { return writeForecast(out, forecast) }); err != nil {
			return err
		}
	}
	run := report.Run{Name: s.Policy, Summary: s, Series: rows, Forecast: forecast, Cluster: w.out.cluster, History: w.history(), Longest: w.measure.LongestWaits()}
	for _, file := range []struct {
		name string
		fill func(io.Writer) error
	}{
		{Frames, func(out io.Writer) error { return writeFrames(out, &run.History) }},
		{Waits, func(out io.Writer) error { return writeWaits(out, run.Longest) }},
		{Fair, func(out io.Writer) error { return writeFair(out, append(w.out.fair.rows, w.measure.Fair())) }},
		{Page, func(out io.Writer) error { return report.HTML(out, []report.Run{run}) }},
	} {
		if err := w.out.write(file.name, file.fill); err != nil {
			return err
		}
	}
	return w.out.write(Summary, func(out io.Writer) error { return WriteSummary(out, s) })
}

// liveJobs adds the rows of the jobs that still wait or run.
func (w *Writer) liveJobs() error {
	now := w.measure.Sample().T
	for _, l := range w.measure.Live() {
		j, _ := w.measure.Job(now, l)
		outcome := "pending"
		if j.Bound > 0 {
			outcome = "running"
		}
		if err := w.out.jobs.add(l, &j, -1, outcome); err != nil {
			return err
		}
	}
	return nil
}

func (o *output) flush() error {
	return errors.Join(o.submitted.Flush(), o.zip.Close(), o.jobs.flush(), o.nodes.flush())
}

// WriteSummary writes s as summary.json and --json spell it.
func WriteSummary(out io.Writer, s metrics.Summary) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(s)
}
