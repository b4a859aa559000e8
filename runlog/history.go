package runlog

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/klauspost/compress/gzip"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/report"
	"github.com/muster-sched/muster/workload"
)

// History is what the folder of a run contains about one job.
type History struct {
	// Job is its row of jobs.csv, by column.
	Job map[string]string `json:"job"`
	// Steps are its decisions, one for all pods with the same decision at one time.
	Steps []Step `json:"steps"`
	// Idle is what became of idle GPUs while it waited for its first start; nil if it did not wait.
	Idle []WaitIdle `json:"idle,omitempty"`
}

// Step is a decision about pods of a job.
type Step struct {
	T      float64 `json:"t"`
	Op     string  `json:"op"`
	Pods   int     `json:"pods"`
	Nodes  int     `json:"nodes"`
	Reason string  `json:"reason"`
	For    string  `json:"for,omitempty"`
	nodes  map[string]bool
}

// ReadHistory reads what the folder of a run contains about a job; false if the run has no
// such job. Errors are bad input.
func ReadHistory(dir, job string) (History, bool, error) {
	summary := filepath.Join(dir, Summary)
	if _, err := os.Stat(summary); err != nil { // the folder does not contain a whole run
		return History{}, false, unreadable(summary, err)
	}
	row, err := findRow(filepath.Join(dir, Jobs), job)
	if err != nil || row == nil {
		return History{}, false, err
	}
	h := History{Job: row}
	if h.Steps, err = readSteps(filepath.Join(dir, Log), job); err != nil {
		return h, true, err
	}
	from, to, err := h.wait(filepath.Join(dir, Timeseries))
	if err == nil && to > from {
		h.Idle, err = readWait(dir, job, from, to)
	}
	return h, true, err
}

// wait returns from when to when the job waited for its first start: until it ended, or until the
// run did, if it never started.
func (h *History) wait(series string) (from, to core.Time, err error) {
	number := func(column string) (core.Time, bool) {
		x, err := strconv.ParseFloat(h.Job[column], 64)
		return inTime(x), err == nil
	}
	from, _ = number("submit_s")
	for _, column := range []string{"start_s", "end_s"} {
		if to, ok := number(column); ok {
			return from, to, nil
		}
	}
	err = eachRow(series, seriesHeader, func(f *fields) {
		to = f.time()
	})
	return from, to, err
}

// findRow returns the row of a CSV file whose first field is name; nil when
// there is none.
func findRow(path, name string) (map[string]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	defer file.Close()
	in := csv.NewReader(bufio.NewReader(file))
	in.ReuseRecord = true
	var header []string
	for {
		row, err := in.Read()
		switch {
		case errors.Is(err, io.EOF):
			return nil, nil
		case err != nil:
			return nil, unreadable(path, err)
		case header == nil:
			header = slices.Clone(row)
		case row[0] == name:
			return maps.Collect(func(yield func(string, string) bool) {
				for i, column := range header {
					if !yield(column, row[i]) {
						return
					}
				}
			}), nil
		}
	}
}

// readSteps reads the decisions about a job.
func readSteps(path, job string) ([]Step, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(bufio.NewReader(file))
	if err != nil {
		return nil, unreadable(path, err)
	}
	quoted, _ := json.Marshal(job)
	var steps []Step
	lines := bufio.NewScanner(plain)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if !bytes.Contains(lines.Bytes(), quoted) {
			continue
		}
		var d struct {
			Step
			Job, Node string
		}
		if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
			return nil, &workload.Error{File: path, Line: n, Want: "a decision; found: " + err.Error()}
		}
		if d.Job == job {
			steps = addStep(steps, d.Step, d.Node)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, unreadable(path, err)
	}
	return steps, nil
}

// addStep adds the decision about a pod to the last step if the decisions are the same.
func addStep(steps []Step, s Step, node string) []Step {
	if n := len(steps) - 1; n < 0 || steps[n].T != s.T || steps[n].Op != s.Op || steps[n].Reason != s.Reason || steps[n].For != s.For {
		s.nodes = map[string]bool{}
		steps = append(steps, s)
	}
	last := &steps[len(steps)-1]
	last.nodes[node] = true
	last.Pods, last.Nodes = last.Pods+1, len(last.nodes)
	return steps
}

// why returns why the job waited until it started or was rejected.
func (h History) why() string {
	j := h.Job
	number := func(column string) float64 {
		x, _ := strconv.ParseFloat(j[column], 64)
		return x
	}
	asked, times, at := number("asked"), number("times"), report.Seconds(number("asked_s"))
	switch {
	case j["outcome"] == "rejected":
		return fmt.Sprintf("%s: %s", j["reason"], j["detail"])
	case asked == 1:
		return fmt.Sprintf("%s, when asked at %s: %s", j["reason"], at, j["detail"])
	case asked > 1:
		return fmt.Sprintf("%s, %g of %g times asked; at %s: %s", j["reason"], times, asked, at, j["detail"])
	case j["start_s"] == j["submit_s"]:
		return "it did not wait"
	}
	return "not known: the engine was not asked about it while it waited"
}

// WriteText writes the history as text.
func (h History) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	j := h.Job
	at := func(column string) string {
		s, err := strconv.ParseFloat(j[column], 64)
		if err != nil {
			return "-"
		}
		return report.Seconds(s)
	}
	fmt.Fprintf(t, "Job\t%s, %s\n", j["job"], j["outcome"])
	fmt.Fprintf(t, "Queue\t%s, %s %s, priority %s\n", j["queue"], j["class"], j["kind"], j["priority"])
	fmt.Fprintf(t, "Size\t%s GPUs, pods: %s, gang: %s\n", j["gpus"], j["pods"], j["gang"])
	fmt.Fprintf(t, "Submitted\t%s\n", at("submit_s"))
	fmt.Fprintf(t, "Started\t%s, after waiting %s\n", at("start_s"), at("wait_s"))
	fmt.Fprintf(t, "Why\t%s\n", h.why())
	writeWait(t, h.Idle)
	fmt.Fprintf(t, "Ended\t%s\n", at("end_s"))
	fmt.Fprintf(t, "Waited in all\t%s, evicted %s times\n", at("queued_s"), j["evictions"])
	fmt.Fprintf(t, "Placed on\tnodes: %s (fewest possible %s), leaf groups: %s (%s)\n", j["nodes"], j["fewest_nodes"], j["groups"], j["fewest_groups"])
	for _, s := range h.Steps {
		why := s.Reason
		if s.For != "" {
			why += ", for " + s.For
		}
		fmt.Fprintf(t, "%s\t%s, pods: %d, nodes: %d: %s\n", report.Seconds(s.T), s.Op, s.Pods, s.Nodes, why)
	}
	return t.Flush()
}

// unreadable is the bad input of a file that cannot be read.
func unreadable(file string, err error) error {
	if path := (*os.PathError)(nil); errors.As(err, &path) {
		err = path.Err
	}
	return &workload.Error{File: file, Want: "a readable file; found: " + err.Error()}
}
