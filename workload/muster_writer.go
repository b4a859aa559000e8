package workload

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// JobWriter writes jobs, one after the other, as Muster's own workload file.
type JobWriter struct {
	out *bufio.Writer
	row row
}

// NewJobWriter returns a writer of a workload file to w. Call Flush at the end.
func NewJobWriter(w io.Writer) *JobWriter {
	jw := &JobWriter{out: bufio.NewWriterSize(w, 1<<16)}
	jw.row.header(slices.Concat(musterJobs.required, musterJobs.optional))
	return jw
}

// Write writes a job, which reads back the same except for its Estimate, which is advice and not
// part of a workload. It returns an error, and writes nothing, for a job that the file cannot
// express: one that is NotPreemptible, NeverPreempts, NeverOnLent, NeverRestarts or Foreign, has times
// below 0 or beyond [Endless], MinPods outside a gang, separators in names. The caller must write jobs in order
// of submission.
func (w *JobWriter) Write(j *Job) error {
	if err := writableJob(j); err != nil {
		return fmt.Errorf("write job %q: %w", j.Name, err)
	}
	for i := range j.Tasks {
		w.row.task(j, &j.Tasks[i])
	}
	_, err := w.out.Write(w.row)
	w.row = w.row[:0]
	return err
}

// Flush writes what is buffered, the header at least.
func (w *JobWriter) Flush() error {
	if _, err := w.out.Write(w.row); err != nil {
		return err
	}
	w.row = w.row[:0]
	return w.out.Flush()
}

// writableJob returns an error for a job that the file cannot express.
func writableJob(j *Job) error {
	switch {
	case j.NotPreemptible || j.NeverPreempts || j.NeverOnLent || j.NeverRestarts || j.Foreign:
		return fmt.Errorf("NotPreemptible, NeverPreempts, NeverOnLent, NeverRestarts and Foreign have no column")
	case len(j.Tasks) == 0 || len(j.Tasks) > maxTasks || j.Pods() > maxPods:
		return fmt.Errorf("1..%d tasks of %d pods in all, found %d tasks", maxTasks, maxPods, len(j.Tasks))
	case min(j.Submitted, j.Duration, j.Checkpoint, j.SaveWithin) < 0 || max(j.Submitted, j.Duration, j.Checkpoint, j.SaveWithin) > Endless:
		return fmt.Errorf("times 0..%v s", Endless.Seconds())
	case j.Name == "" || j.Queue == "" || !plain(j.Name) || !plain(j.Queue) || j.User != "" && !plain(j.User) || j.Profile != "" && !plain(j.Profile):
		return fmt.Errorf("its name, queue %q, user %q or profile %q %w", j.Queue, j.User, j.Profile, errUnwritable)
	case !word(j.Topology.Required, "=;") || !word(j.Topology.Preferred, "=;"):
		return fmt.Errorf("topology %v %w", j.Topology, errUnwritable)
	case j.Topology.Closeness < 0 || j.Topology.Closeness > core.MaxCloseness:
		return fmt.Errorf("closeness 0..%d, found %s", core.MaxCloseness/1000, core.FormatCloseness(j.Topology.Closeness))
	}
	for i := range j.Combinations {
		if slices.ContainsFunc(j.Combinations[i].Models, func(m string) bool { return !word(m, "|+:=") }) {
			return fmt.Errorf("combination of GPU models %q %w", j.Combinations[i].Models, errUnwritable)
		}
	}
	for i := range j.Tasks {
		if err := writableTask(j, &j.Tasks[i]); err != nil {
			return fmt.Errorf("task %q: %w", j.Tasks[i].Name, err)
		}
	}
	return nil
}

func writableTask(j *Job, t *core.Task) error {
	sized := t.GPU >= 0 && t.GPU <= cluster.MaxGPUs*core.WholeGPU && (t.GPU < core.WholeGPU || t.GPU%core.WholeGPU == 0) &&
		t.CPUMilli >= 0 && t.CPUMilli <= maxCPUMilli && t.MemMiB >= 0 && t.MemMiB <= maxMemMiB
	switch {
	case !plain(t.Name) || slices.ContainsFunc(t.Models, func(m string) bool { return m == "" || !word(m, "|=") }):
		return fmt.Errorf("its name or a GPU model of %q %w", t.Models, errUnwritable)
	case t.Pods < 1 || t.MinPods < 0 || t.MinPods > t.Pods || t.MinPods > 0 && !j.Gang:
		return fmt.Errorf("pods %d with MinPods %d %w", t.Pods, t.MinPods, errUnwritable)
	case !sized:
		return fmt.Errorf("pod size %d milli-GPUs, %d milli-cores, %d MiB %w", t.GPU, t.CPUMilli, t.MemMiB, errUnwritable)
	}
	for _, l := range t.Labels {
		if l == "" || !word(l, ";") {
			return fmt.Errorf("label %q %w", l, errUnwritable)
		}
	}
	for _, o := range t.Affinity {
		if o.Level == "" || o.Label == "" || !word(o.Level, ":;") || !word(o.Label, ";") {
			return fmt.Errorf("affinity %v %w", o, errUnwritable)
		}
	}
	for i := range t.Prefers {
		o := &t.Prefers[i]
		back, err := cluster.ParsePreference(o.String())
		if err != nil || !plain(o.String()) || strings.Contains(o.String(), ";") || !reflect.DeepEqual(back, *o) {
			return fmt.Errorf("preference %v %w", o, errUnwritable)
		}
	}
	for i := range t.Selector {
		if !writableRequirement(&t.Selector[i]) {
			return fmt.Errorf("selector %v %w", t.Selector[i], errUnwritable)
		}
	}
	for _, tol := range t.Tolerations {
		if !word(tol.Key, "=;") || !word(tol.Value, ";") || !word(tol.Effect, "=:;!") {
			return fmt.Errorf("toleration %v %w", tol, errUnwritable)
		}
	}
	return nil
}

func writableRequirement(r *core.Requirement) bool {
	valued := r.Op == cluster.In || r.Op == cluster.NotIn
	return r.Key != "" && word(r.Key, "!=:;") && valued == (len(r.Values) > 0) &&
		!slices.ContainsFunc(r.Values, func(v string) bool { return !word(v, "|;") })
}

// plain reports whether text can be a field of a file.
func plain(text string) bool { return printable(text) && utf8.ValidString(text) }

// word reports whether text is plain and free of separators.
func word(text, separators string) bool {
	return plain(text) && !strings.ContainsAny(text, separators)
}

// task appends the row of a task.
func (r *row) task(j *Job, t *core.Task) {
	r.text(j.Name)
	r.text(t.Name)
	r.text(j.Queue)
	r.text(j.Kind.String())
	r.text(j.Class.String())
	r.int(int64(j.Priority))
	r.bool(j.Gang)
	r.pods(t)
	r.int(int64(t.GPU))
	r.int(t.CPUMilli)
	r.int(t.MemMiB)
	r.text(strings.Join(t.Accepted(), "|"))
	r.seconds(j.Submitted)
	r.seconds(j.Duration)
	r.text(j.Outcome.String())
	r.seconds(j.Checkpoint)
	r.bool(j.Locked)
	r.text(string(appendTopology(nil, j.Topology)))
	r.text(string(appendAffinity(nil, t)))
	r.text(j.Mobility.String())
	r.text(standbyText(j.Standby))
	r.text(j.User)
	r.text(j.Profile)
	r.text(suspensionText(j.Suspend))
	r.text(core.FormatCombinations(j.Combinations, nil))
	r.text(map[bool]string{true: "true"}[j.Alternatives])
	if j.SaveWithin > 0 {
		r.seconds(j.SaveWithin)
	} else {
		r.text("")
	}
	r.end()
}

// pods appends the number of pods of a task: N, or MIN-N.
func (r *row) pods(t *core.Task) {
	if t.MinPods > 0 {
		*r = append(strconv.AppendInt(*r, int64(t.MinPods), 10), '-')
	}
	r.int(int64(t.Pods))
}

// row builds rows of CSV.
type row []byte

// header appends a header row.
func (r *row) header(names []string) {
	for _, name := range names {
		r.text(name)
	}
	r.end()
}

// text appends a field, quoted where it must be.
func (r *row) text(s string) {
	if strings.ContainsAny(s, `",`) {
		s = `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
	}
	*r = append(append(*r, s...), ',')
}

func (r *row) int(v int64) { *r = append(strconv.AppendInt(*r, v, 10), ',') }

func (r *row) bool(v bool) { *r = append(strconv.AppendBool(*r, v), ',') }

// seconds appends a time that is not negative, with the decimals it needs.
func (r *row) seconds(t core.Time) {
	b := strconv.AppendInt(*r, int64(t/core.Second), 10)
	if fraction := t % core.Second; fraction > 0 {
		point := len(b)
		b = strconv.AppendInt(b, int64(core.Second+fraction), 10)
		b[point] = '.' // in place of the 1 that kept the leading zeros
		b = bytes.TrimRight(b, "0")
	}
	*r = append(b, ',')
}

// end ends the row.
func (r *row) end() { (*r)[len(*r)-1] = '\n' }
