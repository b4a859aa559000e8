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
	nodes, err := countGPUNodes(filepath.Join(dir, Cluster))
	if err != nil {
		return r, err
	}
	r.Series, err = readSeries(filepath.Join(dir, Timeseries))
	for i := range r.Series {
		r.Series[i].GPUNodes = nodes
	}
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

func countGPUNodes(path string) (int64, error) {
	var n int64
	column := -1
	err := eachRow(path, func(line int, row []string) error {
		if line == 1 {
			if column = slices.Index(row, "gpus"); column < 0 {
				return &workload.Error{File: path, Line: 1, Field: "gpus", Want: "this column"}
			}
			return nil
		}
		if row[column] != "0" {
			n++
		}
		return nil
	})
	return n, err
}

func readSeries(path string) ([]metrics.Sample, error) {
	var rows []metrics.Sample
	want := strings.Split(strings.TrimSpace(seriesHeader), ",")
	err := eachRow(path, func(line int, row []string) error {
		if line == 1 {
			if !slices.Equal(row, want) {
				return &workload.Error{File: path, Line: 1, Want: "the columns " + strings.Join(want, ", ")}
			}
			return nil
		}
		var v [6]float64
		for i, field := range row {
			x, err := strconv.ParseFloat(field, 64)
			if err != nil {
				return &workload.Error{File: path, Line: line, Field: want[i], Want: fmt.Sprintf("a number, found %q", field)}
			}
			v[i] = x
		}
		rows = append(rows, metrics.Sample{
			T:         core.Time(v[0] * float64(core.Second)),
			Allocated: core.Milli(v[1]*float64(core.WholeGPU) + 0.5),
			Available: int64(v[2]), FragmentedNodes: int64(v[3]),
			Pending: int64(v[4]), Running: int64(v[5]),
		})
		return nil
	})
	return rows, err
}

// eachRow calls f for every row of a CSV file, the header (line 1) included.
// All rows have as many fields as the header.
func eachRow(path string, f func(line int, row []string) error) error {
	file, err := os.Open(path)
	if err != nil {
		return &workload.Error{File: path, Want: "a file of a run: " + cause(err)}
	}
	defer file.Close()
	in := csv.NewReader(file)
	for {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &workload.Error{File: path, Want: "a CSV file: " + err.Error()}
		}
		line, _ := in.FieldPos(0)
		if err := f(line, row); err != nil {
			return err
		}
	}
}
