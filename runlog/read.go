package runlog

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/metrics"
	"github.com/muster-sched/muster/report"
	"github.com/muster-sched/muster/workload"
)

// Read reads from a run folder what reports show. The run is named by its
// policy. GPUNodes of the series is taken from cluster.csv, as if no node had
// been lost. The error is bad input when dir is not a run folder.
func Read(dir string) (report.Run, error) {
	var r report.Run
	if err := readSummary(filepath.Join(dir, Summary), &r.Summary); err != nil {
		return r, err
	}
	r.Name = r.Summary.Policy
	c, err := workload.OpenCluster(filepath.Join(dir, Cluster), workload.Options{})
	if err != nil {
		return r, err
	}
	r.Cluster = &c
	if c.Queues, err = readQueues(filepath.Join(dir, Queues)); err != nil {
		return r, err
	}
	if r.Series, err = readSeries(filepath.Join(dir, Timeseries)); err != nil {
		return r, err
	}
	nodes := gpuNodes(&c)
	for i := range r.Series {
		r.Series[i].GPUNodes = nodes
	}
	if r.History, err = readFrames(filepath.Join(dir, Frames), len(c.Nodes)); err != nil {
		return r, err
	}
	if r.Forecast, err = readForecast(filepath.Join(dir, Forecast)); err != nil {
		return r, err
	}
	r.Longest, err = readWaits(filepath.Join(dir, Waits))
	return r, err
}

func readSummary(path string, s *metrics.Summary) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return &workload.Error{File: path, Want: "the summary of a run: " + cause(err)}
	}
	if err := json.Unmarshal(text, s); err != nil {
		return &workload.Error{File: path, Want: "the summary of a run: " + err.Error()}
	}
	return nil
}

func gpuNodes(c *workload.Cluster) int64 {
	var n int64
	for i := range c.Nodes {
		if c.Nodes[i].GPUs > 0 {
			n++
		}
	}
	return n
}

func readSeries(path string) ([]metrics.Sample, error) {
	var rows []metrics.Sample
	err := eachRow(path, seriesHeader, func(f *fields) {
		rows = append(rows, metrics.Sample{
			T:         f.time(),
			Allocated: f.gpus(),
			Available: f.int(), FragmentedNodes: f.int(),
			Pending: f.int(), Running: f.int(),
		})
	})
	return rows, err
}

// eachRow calls f for every row of a CSV file that has exactly the columns of
// header.
func eachRow(path, header string, f func(*fields)) error {
	file, err := os.Open(path)
	if err != nil {
		return &workload.Error{File: path, Want: "a file of a run: " + cause(err)}
	}
	defer file.Close()
	in := csv.NewReader(file)
	want := strings.Split(strings.TrimSpace(header), ",")
	for first := true; ; first = false {
		row, err := in.Read()
		if errors.Is(err, io.EOF) && !first {
			return nil
		}
		if err != nil {
			return &workload.Error{File: path, Want: "a CSV file: " + err.Error()}
		}
		if first {
			if !slices.Equal(row, want) {
				return &workload.Error{File: path, Line: 1, Want: "the columns " + strings.Join(want, ", ")}
			}
			continue
		}
		line, _ := in.FieldPos(0)
		r := fields{path: path, line: line, names: want, row: row}
		if f(&r); r.err != nil {
			return r.err
		}
	}
}

// fields reads the fields of a row from left to right, and keeps the first
// error.
type fields struct {
	path       string
	line, next int
	names, row []string
	err        error
}

func (f *fields) text() string {
	f.next++
	return f.row[f.next-1]
}

func (f *fields) number() float64 {
	s := f.text()
	x, err := strconv.ParseFloat(s, 64)
	if err != nil && f.err == nil {
		f.err = &workload.Error{File: f.path, Line: f.line, Field: f.names[f.next-1], Want: fmt.Sprintf("a number, found %q", s)}
	}
	return x
}

func (f *fields) int() int64       { return int64(f.number()) }
func (f *fields) time() core.Time  { return core.Time(f.number() * float64(core.Second)) }
func (f *fields) gpus() core.Milli { return core.Milli(f.number()*float64(core.WholeGPU) + 0.5) }

// name reads the position of a name among all.
func (f *fields) name(all ...string) int {
	s := f.text()
	i := slices.Index(all, s)
	if i < 0 && f.err == nil {
		f.err = &workload.Error{File: f.path, Line: f.line, Field: f.names[f.next-1], Want: fmt.Sprintf("%s, found %q", strings.Join(all, ", "), s)}
	}
	return max(i, 0)
}
