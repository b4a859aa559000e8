package workload

import (
	"cmp"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Elastic are measured applications that train on any number of GPUs of several models, as the authors of Sia measured them (SOSP
// 2023, §4): how long a step takes, and what a batch size costs in progress.
type Elastic struct {
	// Apps are sorted by name.
	Apps []*ElasticApp
}

// ElasticApp is an application that was measured.
type ElasticApp struct {
	Name string
	// Steps are by GPU model and place, each in the order of the batch sizes. Places have as many GPUs on each node.
	Steps map[ElasticPlace][]StepTime
	// Runs are whole trainings, in the order of their batch sizes, all with as many epochs.
	Runs []ElasticRun
	// Restart is for how long the GPUs of a job that starts are idle, and Expected what a scheduler takes that to be, in seconds. Slower is how much
	// longer than measured steps take, 1 or more: what lies between them.
	Restart, Expected, Slower float64
}

// siaStarts are constants of the simulator of Sia's authors, by application: Restart, Expected and Slower. Others have the first row.
var siaStarts = map[string][3]float64{
	"":            {30, 30, 1},
	"cifar10":     {50, 30, 1.8},
	"deepspeech2": {25, 25, 1.2},
	"bert":        {120, 120, 1.2},
	"yolov3":      {80, 45, 1.2},
	"imagenet":    {250, 250, 1.2},
}

// ElasticPlace is where a job runs: GPUs in all, the same number on each of the nodes.
type ElasticPlace struct {
	Model       string
	Nodes, GPUs int
}

// StepTime is how long a step takes.
type StepTime struct {
	// Batch is the batch size of each GPU.
	Batch float64
	// Step and Sync are seconds above 0; Sync is the part of Step in which GPUs exchange gradients without computing. (Of an application
	// that is a pipeline of stages, it comes on top.)
	Step, Sync float64
}

// ElasticRun is a training with one batch size.
type ElasticRun struct {
	// Batch is the batch size of all GPUs together.
	Batch  int
	Epochs []ElasticEpoch
}

// ElasticEpoch is what was measured at the end of an epoch.
type ElasticEpoch struct {
	// Progress is how far the training is since its start, in steps of the smallest batch size.
	Progress float64
	// GradSqr and GradVar are the square and the variance of the gradients of the smallest batch size.
	GradSqr, GradVar float64
}

// Training is what a job trains, if how fast that goes was measured.
type Training struct {
	App *ElasticApp
	// Batch is the batch size that its user tuned.
	Batch int
}

const (
	elasticPlaces      = "profile_placements.csv"
	elasticScalability = "profile_scalability.csv"
	elasticRuns        = "profile_validation.csv"
)

// OpenElastic reads the three files profile_*.csv of a folder, compressed by gzip (.gz) or not. Places with unequal numbers of GPUs
// on their nodes are left out. Of a place that is in both files of step times, those of profile_placements count.
func OpenElastic(folder string) (*Elastic, error) {
	e := &Elastic{}
	err := eachRow(folder, elasticPlaces, []string{"app", "gpu_type", "placement", "local_bsz", "step_time", "sync_time"}, func(t *table) {
		nodes, gpus, even := evenPlace(t)
		if s := t.stepTime(3); even && t.err == nil {
			e.app(string(t.name(0))).add(ElasticPlace{string(t.name(1)), nodes, gpus}, s)
		}
	})
	if err != nil {
		return nil, err
	}
	measured := map[string]map[ElasticPlace]bool{}
	for _, a := range e.Apps {
		measured[a.Name] = map[ElasticPlace]bool{}
		for p := range a.Steps {
			measured[a.Name][p] = true
		}
	}
	err = eachRow(folder, elasticScalability, []string{"app", "gpu_type", "num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time"}, func(t *table) {
		p := ElasticPlace{string(t.name(1)), int(t.count(2, 1, maxPods)), int(t.count(3, 1, maxPods))}
		if s := t.stepTime(4); t.err == nil && p.GPUs%p.Nodes == 0 && !measured[string(t.name(0))][p] {
			e.app(string(t.name(0))).add(p, s)
		}
	})
	if err != nil {
		return nil, err
	}
	err = eachRow(folder, elasticRuns, []string{"app", "batch_size", "progress", "grad_sqr", "grad_var"}, func(t *table) {
		batch := int(t.count(1, 1, math.MaxInt32))
		if x := (ElasticEpoch{t.positive(2), t.number(3), t.number(4)}); t.err == nil {
			e.app(string(t.name(0))).epoch(batch, x)
		}
	})
	if err != nil {
		return nil, err
	}
	return e, e.check(folder)
}

// App returns an application, nil if it was not measured.
func (e *Elastic) App(name string) *ElasticApp {
	i, ok := slices.BinarySearchFunc(e.Apps, name, func(a *ElasticApp, name string) int { return cmp.Compare(a.Name, name) })
	if !ok {
		return nil
	}
	return e.Apps[i]
}

// app returns an application, which is new if it was not read before.
func (e *Elastic) app(name string) *ElasticApp {
	if a := e.App(name); a != nil {
		return a
	}
	start, ok := siaStarts[name]
	if !ok {
		start = siaStarts[""]
	}
	a := &ElasticApp{Name: name, Steps: map[ElasticPlace][]StepTime{}, Restart: start[0], Expected: start[1], Slower: start[2]}
	i, _ := slices.BinarySearchFunc(e.Apps, name, func(a *ElasticApp, name string) int { return cmp.Compare(a.Name, name) })
	e.Apps = slices.Insert(e.Apps, i, a)
	return a
}

// add adds a step time, in the order of batch sizes.
func (a *ElasticApp) add(p ElasticPlace, s StepTime) {
	i, _ := slices.BinarySearchFunc(a.Steps[p], s, func(x, y StepTime) int { return cmp.Compare(x.Batch, y.Batch) })
	a.Steps[p] = slices.Insert(a.Steps[p], i, s)
}

// epoch adds an epoch of the training with a batch size.
func (a *ElasticApp) epoch(batch int, x ElasticEpoch) {
	i, ok := slices.BinarySearchFunc(a.Runs, batch, func(r ElasticRun, batch int) int { return cmp.Compare(r.Batch, batch) })
	if !ok {
		a.Runs = slices.Insert(a.Runs, i, ElasticRun{Batch: batch})
	}
	a.Runs[i].Epochs = append(a.Runs[i].Epochs, x)
}

// check says what is wrong with the files together.
func (e *Elastic) check(folder string) error {
	runs := filepath.Join(folder, elasticRuns)
	for _, a := range e.Apps {
		if len(a.Runs) == 0 {
			return &Error{File: runs, Want: "trainings of each application with step times, found none of " + a.Name}
		}
		for _, r := range a.Runs {
			if len(r.Epochs) != len(a.Runs[0].Epochs) {
				return &Error{File: runs, Want: "as many epochs for each batch size, found others of " + a.Name}
			}
			for i := range r.Epochs[1:] {
				if r.Epochs[i].Progress >= r.Epochs[i+1].Progress {
					return &Error{File: runs, Want: "progress that grows from epoch to epoch, found another one of " + a.Name}
				}
			}
		}
	}
	return nil
}

// eachRow reads the columns of each row of a file of a folder, compressed by gzip (.gz) or not.
func eachRow(folder, name string, columns []string, read func(t *table)) error {
	path := filepath.Join(folder, name)
	if _, err := os.Stat(path + ".gz"); err == nil {
		path += ".gz"
	}
	t, err := openTable(path)
	if err != nil {
		return err
	}
	defer t.close()
	for _, c := range columns {
		if !slices.Contains(t.header, c) {
			return &Error{File: path, Line: 1, Field: c, Want: "a column of this name, found none"}
		}
	}
	t.use(columns, nil)
	for {
		if err := t.next(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if read(t); t.err != nil {
			return t.err
		}
	}
}

// evenPlace reads a placement in column 2: a digit for each node, its GPUs. It says whether those are equal.
func evenPlace(t *table) (nodes, gpus int, even bool) {
	digits := t.name(2)
	even = true
	for _, d := range digits {
		if d < '1' || d > '9' {
			t.wrong(2, "a digit 1..9 for each node")
			return 0, 0, false
		}
		gpus += int(d - '0')
		even = even && d == digits[0]
	}
	return len(digits), gpus, even
}

// stepTime reads a batch size, a step time and the part of it without computation.
func (t *table) stepTime(c int) StepTime {
	return StepTime{t.positive(c), t.positive(c + 1), t.positive(c + 2)}
}

// positive reads a number above 0.
func (t *table) positive(c int) float64 {
	v := t.number(c)
	if v == 0 {
		t.wrong(c, "a number above 0")
	}
	return v
}

// number reads a number of at least 0, with an exponent or without.
func (t *table) number(c int) float64 {
	v, err := strconv.ParseFloat(string(t.field(c)), 64)
	if err != nil || !(v >= 0) || math.IsInf(v, 0) {
		t.wrong(c, "a number of at least 0")
		return 1
	}
	return v
}
