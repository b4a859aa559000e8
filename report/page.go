package report

import (
	"cmp"
	"math"
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/frag"
	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/workload"
)

// page is what the script of report.html shows: the JSON in the page. Times are
// in seconds from the workload's zero, amounts in GPUs, ratios between 0 and 1.
type page struct {
	Runs     []pageRun     `json:"runs"`
	Clusters []pageCluster `json:"clusters"`
	// Classes names the classes of jobs by size, smallest first.
	Classes []string `json:"classes"`
	// Queues are those that held most, then the others together.
	Queues []pageQueue `json:"queues"`
}

type pageRun struct {
	Name    string          `json:"name"`
	Summary metrics.Summary `json:"summary"`
	Series  pageSeries      `json:"series"`
	// Cluster is an index in page.Clusters, -1 when it is not known.
	Cluster int        `json:"cluster"`
	Frames  pageFrames `json:"frames"`
	// Queues has, for each of page.Queues, what it held at the time of each
	// frame.
	QueueTimes []float64   `json:"queue_times"`
	Queues     [][]float64 `json:"queues"`
	// Idle is what becomes of idle GPUs at the time of each frame.
	Idle  []pageIdle `json:"idle"`
	Waits []pageWait `json:"waits"`
	// Forecast is what HP jobs held of each model, and had been expected to hold.
	Forecast []pageForecast `json:"forecast,omitempty"`
}

// pageIdle is GPUs at the time of each frame, by what becomes of them; a list is missing where
// it is 0 at all times.
type pageIdle struct {
	Shape       string    `json:"shape"`
	Allocatable []float64 `json:"allocatable,omitempty"`
	Fractional  []float64 `json:"fractional,omitempty"`
	Stranded    []float64 `json:"stranded,omitempty"`
	CPU         []float64 `json:"cpu,omitempty"`
	Topology    []float64 `json:"topology,omitempty"`
	Other       []float64 `json:"other,omitempty"`
	Unusable    []float64 `json:"unusable,omitempty"`
}

// newIdle returns what becomes of idle GPUs over time, for each shape.
func newIdle(h *metrics.History) []pageIdle {
	var all []pageIdle
	for k, shape := range h.Shapes {
		list := func(causes ...frag.Cause) []float64 {
			var list []float64
			most := 0.0
			for f := range h.Frames {
				sum := cluster.Milli(0)
				if k < len(h.Frames[f].Idle) {
					for _, c := range causes {
						sum += h.Frames[f].Idle[k][c]
					}
				}
				list = append(list, round(inGPUs(sum), 100))
				most = max(most, inGPUs(sum))
			}
			if most == 0 {
				return nil
			}
			return list
		}
		all = append(all, pageIdle{
			shape, list(frag.Allocatable), list(frag.Fractional), list(frag.Stranded), list(frag.CPU), list(frag.Topology), list(frag.Memory, frag.Pods, frag.Other, frag.Gang),
			list(frag.Cordoned, frag.Tainted, frag.Unhealthy),
		})
	}
	return all
}

// pageSeries is the state over time, as means over equal parts of it.
type pageSeries struct {
	T       []float64 `json:"t"`
	GAR     []float64 `json:"gar"`
	GFR     []float64 `json:"gfr"`
	Pending []float64 `json:"pending"`
	Running []float64 `json:"running"`
}

type pageQueue struct {
	Name string `json:"name"`
	// Quota is its nominal quota in all models, nil when it has none.
	Quota *float64 `json:"quota"`
	// Parent is set if jobs of the queues below it count too. Others is the number of
	// queues for which it stands.
	Parent bool `json:"parent,omitempty"`
	Others int  `json:"others,omitempty"`
}

type pageWait struct {
	Job    string  `json:"job"`
	Queue  string  `json:"queue"`
	Kind   string  `json:"kind"`
	Class  string  `json:"class"`
	Pods   int     `json:"pods"`
	GPUs   float64 `json:"gpus"`
	Submit float64 `json:"submit"`
	Wait   float64 `json:"wait"`
	Waits  bool    `json:"waits"`
	Asked  int     `json:"asked"`
	Times  int     `json:"times"`
	Reason string  `json:"reason"`
	At     float64 `json:"at"` // of Detail
	Detail string  `json:"detail"`
}

// points is the maximum number of them in a line.
const points = 720

// newPage returns the page without the frames.
func newPage(runs []Run) (*page, error) {
	p := &page{Classes: metrics.Classes[:], Runs: make([]pageRun, len(runs)), Clusters: []pageCluster{}}
	p.Queues = topQueues(runs)
	for i := range runs {
		r, to := &runs[i], &p.Runs[i]
		*to = pageRun{Name: r.Name, Summary: r.Summary, Series: newSeries(r.Series), Cluster: -1}
		to.Summary.Fairness = mostLacking(r.Summary.Fairness)
		to.QueueTimes, to.Queues = queueUse(r, p.Queues)
		to.Idle = newIdle(&r.History)
		to.Forecast = newForecast(r.Forecast)
		for _, w := range r.Longest {
			to.Waits = append(to.Waits, newWait(&w))
		}
		if r.Cluster == nil || len(r.History.Frames) == 0 {
			continue
		}
		c, err := newCluster(r.Cluster)
		if err != nil {
			return nil, err
		}
		to.Cluster = slices.Index(p.Clusters, c)
		if to.Cluster < 0 {
			to.Cluster = len(p.Clusters)
			p.Clusters = append(p.Clusters, c)
		}
	}
	return p, nil
}

// usersShown is how many users the page has of each run.
const usersShown = 50

// mostLacking returns the fairness of a run with the users who lack most alone, those first.
func mostLacking(f *metrics.Fairness) *metrics.Fairness {
	if f == nil {
		return nil
	}
	to := *f
	to.ByUser = slices.Clone(f.ByUser)
	slices.SortStableFunc(to.ByUser, func(a, b metrics.UserFairness) int {
		return cmp.Compare(b.Deserved-b.Received, a.Deserved-a.Received)
	})
	to.ByUser = to.ByUser[:min(len(to.ByUser), usersShown)]
	return &to
}

// addFrames adds the frames of all runs that have some, in this many bytes of the
// page.
func (p *page) addFrames(runs []Run, budget int) error {
	for i := range p.Runs {
		if p.Runs[i].Cluster < 0 {
			continue
		}
		var err error
		if p.Runs[i].Frames, err = newFrames(&runs[i], budget/len(runs)); err != nil {
			return err
		}
	}
	return nil
}

func newWait(w *metrics.LongWait) pageWait {
	return pageWait{
		Job: w.Job, Queue: w.Queue, Kind: w.Kind.String(), Class: w.Class.String(), Pods: w.Pods, GPUs: inGPUs(w.GPUs),
		Submit: w.Submitted.Seconds(), Wait: w.Waited.Seconds(), Waits: w.Waits,
		Asked: w.Why.Asked, Times: w.Why.Times, Reason: w.Why.Reason, At: w.Why.At.Seconds(), Detail: w.Why.Detail,
	}
}

func newSeries(rows []metrics.Sample) pageSeries {
	var s pageSeries
	if len(rows) == 0 {
		return s
	}
	n := min(points, len(rows))
	from, to := rows[0].T.Seconds(), rows[len(rows)-1].T.Seconds()
	for i := range n {
		s.T = append(s.T, round(from+(to-from)*(float64(i)+0.5)/float64(n), 10))
	}
	s.GAR = resample(rows, n, metrics.Sample.GAR)
	s.GFR = resample(rows, n, metrics.Sample.GFR)
	s.Pending = resample(rows, n, func(r metrics.Sample) float64 { return float64(r.Pending) })
	s.Running = resample(rows, n, func(r metrics.Sample) float64 { return float64(r.Running) })
	return s
}

// resample returns the mean of a value in each of n equal parts of the time
// that rows cover. A part without a row repeats the one before it.
func resample(rows []metrics.Sample, n int, value func(metrics.Sample) float64) []float64 {
	sums, counts := make([]float64, n), make([]int, n)
	from := rows[0].T
	span := rows[len(rows)-1].T - from + 1
	for _, r := range rows {
		i := min(int(float64(r.T-from)/float64(span)*float64(n)), n-1)
		sums[i] += value(r)
		counts[i]++
	}
	for i := range sums {
		switch {
		case counts[i] > 0:
			sums[i] = round(sums[i]/float64(counts[i]), 10000)
		case i > 0:
			sums[i] = sums[i-1]
		}
	}
	return sums
}

// round rounds to parts of one, so that numbers are short.
func round(x, parts float64) float64 { return math.Round(x*parts) / parts }

func inGPUs(m core.Milli) float64 { return float64(m) / float64(core.WholeGPU) }

// queuesShown is the number of queues that have a plot of their own.
const queuesShown = 12

// topQueues returns the queues that held most in any of the runs, on average,
// and what stands for the others.
func topQueues(runs []Run) []pageQueue {
	most := map[string]float64{}
	parents := map[string]bool{}
	for i := range runs {
		r := &runs[i]
		above := ancestors(r.Cluster)
		mean := map[string]float64{}
		for q, name := range r.History.Queues {
			held := 0.0
			for _, f := range r.History.Frames {
				if q < len(f.Queues) {
					held += inGPUs(f.Queues[q]) / float64(len(r.History.Frames))
				}
			}
			mean[name] += held
			for _, a := range above[name] {
				mean[a] += held
				parents[a] = true
			}
		}
		for name, held := range mean {
			most[name] = max(most[name], held)
		}
	}
	all := []pageQueue{}
	for name := range most {
		all = append(all, pageQueue{Name: name, Parent: parents[name]})
	}
	slices.SortFunc(all, func(a, b pageQueue) int {
		return cmp.Or(cmp.Compare(most[b.Name], most[a.Name]), cmp.Compare(a.Name, b.Name))
	})
	if n := len(all) - queuesShown; n > 1 {
		all = append(all[:queuesShown], pageQueue{Others: n})
	}
	for i := range all {
		all[i].Quota = quotaOf(runs, all[i].Name)
	}
	return all
}

// ancestors returns the queues above each queue.
func ancestors(c *workload.Cluster) map[string][]string {
	all := map[string][]string{}
	if c != nil {
		for _, q := range c.Queues { // parents come first
			if q.Parent != "" {
				all[q.Name] = append([]string{q.Parent}, all[q.Parent]...)
			}
		}
	}
	return all
}

// quotaOf returns the nominal quota of a queue over all models: the one it has
// for any model, or the sum of those it has for each.
func quotaOf(runs []Run, name string) *float64 {
	for i := range runs {
		if runs[i].Cluster == nil {
			continue
		}
		for _, q := range runs[i].Cluster.Queues {
			if q.Name != name || len(q.Quota) == 0 {
				continue
			}
			sum := 0.0
			for _, x := range q.Quota {
				if x.Model == "*" {
					sum = inGPUs(x.Nominal)
					break
				}
				sum += inGPUs(x.Nominal)
			}
			return &sum
		}
	}
	return nil
}

// queueUse returns the times of the frames, and what each of the queues shown
// held then.
func queueUse(r *Run, shown []pageQueue) (times []float64, held [][]float64) {
	at := map[string]int{}
	others := -1
	for i, q := range shown {
		if q.Others > 0 {
			others = i
		} else {
			at[q.Name] = i
		}
	}
	above := ancestors(r.Cluster)
	held = make([][]float64, len(shown))
	for i := range held {
		held[i] = make([]float64, len(r.History.Frames))
	}
	for f := range r.History.Frames {
		times = append(times, round(r.History.At(f).Seconds(), 10))
		for q, m := range r.History.Frames[f].Queues {
			name := r.History.Queues[q]
			if i, ok := at[name]; ok {
				held[i][f] += inGPUs(m)
			} else if others >= 0 {
				held[others][f] += inGPUs(m)
			}
			for _, a := range above[name] {
				if i, ok := at[a]; ok {
					held[i][f] += inGPUs(m)
				}
			}
		}
	}
	for i := range held {
		for f, x := range held[i] {
			held[i][f] = round(x, 100)
		}
	}
	return times, held
}
