package runlog

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/frag"
	"github.com/muster-sched/muster/workload"
)

// WaitIdle says what became of idle GPUs while a job waited for its first start: of the nodes that a
// task accepts, on average over that time, for pods as the task's, all that must start together.
type WaitIdle struct {
	Task  string `json:"task"`
	Shape string `json:"shape"`
	// Pods must start together, within one domain of Level; 1 if pods start one by one.
	Pods  int    `json:"pods"`
	Level string `json:"level,omitempty"`
	// Idle is in GPUs, Causes has those that are not 0 by cause.
	Idle   float64            `json:"idle_gpus"`
	Causes map[string]float64 `json:"causes"`
}

// readWait returns what became of idle GPUs between two times, for each task of a job with GPUs.
func readWait(dir, job string, from, to core.Time) ([]WaitIdle, error) {
	j, err := findJob(filepath.Join(dir, Workload), job)
	if err != nil || j == nil {
		return nil, err
	}
	r, err := openIdle(dir, to)
	if err != nil {
		return nil, err
	}
	w := &waitWatch{r: r, from: from, to: to}
	for k := range j.Tasks {
		if j.Tasks[k].GPU > 0 {
			w.add(&j.Job, &j.Tasks[k])
		}
	}
	if len(w.tasks) == 0 {
		return nil, nil
	}
	r.watch = w
	if err := r.read(filepath.Join(dir, Log), to); err != nil {
		return nil, err
	}
	w.until(to)
	return w.means(), nil
}

// findJob returns a job of a workload; nil if there is none of that name.
func findJob(path, name string) (*workload.Job, error) {
	all, _, err := workload.OpenJobs(path, workload.Options{})
	if err != nil {
		return nil, err
	}
	for j, err := range all {
		if err != nil {
			return nil, err
		}
		if j.Name == name {
			return &j, nil
		}
	}
	return nil, nil
}

// waitWatch sums up over time.
type waitWatch struct {
	r             *idleReader
	from, to, now core.Time
	tasks         []waitTask
}

type waitTask struct {
	WaitIdle
	of     *core.Task
	tally  *frag.Tally
	places []frag.Place
	uses   []bool
	sum    [frag.NumCauses]float64
}

// add follows a task. A level that is not one of the topology, such as node, is not followed.
func (w *waitWatch) add(j *core.Job, of *core.Task) {
	shape := frag.Shape{GPU: of.GPU, CPUMilli: of.CPUMilli, MemMiB: of.MemMiB}
	t := waitTask{of: of, WaitIdle: WaitIdle{Task: of.Name, Shape: shape.String(), Pods: 1, Causes: map[string]float64{}}}
	level := frag.Across
	if j.Gang {
		t.Pods = max(1, of.Minimum())
		if level = slices.Index(w.r.levels, j.Topology.Required); level >= 0 {
			t.Level = j.Topology.Required
		}
	}
	t.tally = frag.NewTally(nil, []frag.Job{{Shape: shape, Pods: t.Pods}}, level)
	for i := range w.r.nodes {
		n := &w.r.nodes[i]
		t.uses = append(t.uses, n.Spec.GPUs > 0 && (len(of.Models) == 0 || slices.Contains(of.Models, n.Spec.Model)) && of.Allows(n.Spec.Labels))
		t.places = append(t.places, t.tally.Place(n))
	}
	w.tasks = append(w.tasks, t)
	for i := range w.r.nodes {
		w.tasks[len(w.tasks)-1].count(w.r, i, 1)
	}
}

// count adds a node, or by -1 takes it out.
func (t *waitTask) count(r *idleReader, i, by int) {
	if !r.up[i] || !t.uses[i] {
		return
	}
	n := r.nodes[i]
	if n.Closed == frag.Tainted && !slices.ContainsFunc(n.Spec.Taints, t.repels) {
		n.Closed = frag.Allocatable
	}
	t.tally.Count(&n, t.places[i], by)
}

// repels reports whether the task does not tolerate a taint.
func (t *waitTask) repels(x core.Taint) bool {
	return !x.Soft() && !slices.ContainsFunc(t.of.Tolerations, func(o core.Toleration) bool { return o.Bears(&x) })
}

func (w *waitWatch) before(i int) { w.count(i, -1) }
func (w *waitWatch) after(i int)  { w.count(i, 1) }

func (w *waitWatch) count(i, by int) {
	for k := range w.tasks {
		w.tasks[k].count(w.r, i, by)
	}
}

func (w *waitWatch) until(t core.Time) {
	if dt := min(t, w.to) - max(w.now, w.from); dt > 0 {
		for k := range w.tasks {
			for c, gpu := range w.tasks[k].tally.Gangs[0] {
				w.tasks[k].sum[c] += float64(gpu) * dt.Seconds()
			}
		}
	}
	w.now = t
}

func (w *waitWatch) means() []WaitIdle {
	var all []WaitIdle
	for k := range w.tasks {
		t := &w.tasks[k]
		for c, sum := range t.sum {
			if gpus := sum / (w.to - w.from).Seconds() / float64(core.WholeGPU); gpus > 0 {
				t.Idle += gpus
				t.Causes[frag.Cause(c).String()] = gpus
			}
		}
		all = append(all, t.WaitIdle)
	}
	return all
}

// text says for which pods how many GPUs had each cause, in the order of the causes.
func (x *WaitIdle) text() string {
	what := "pods of " + x.Shape
	if x.Pods > 1 {
		what = fmt.Sprintf("gangs of %d pods of %s", x.Pods, x.Shape)
	}
	if x.Level != "" {
		what += " within one " + x.Level
	}
	if x.Idle == 0 {
		return "none on the nodes that it accepts, for " + what
	}
	var parts []string
	for c := frag.Cause(0); c < frag.NumCauses; c++ {
		if gpus := x.Causes[c.String()]; gpus > 0 {
			parts = append(parts, fmt.Sprintf("%s %s (%.0f %%)", c, inText(gpus), 100*gpus/x.Idle))
		}
	}
	return fmt.Sprintf("%s on average on the nodes that it accepts; for %s: %s", inText(x.Idle), what, strings.Join(parts, ", "))
}

func inText(gpus float64) string { return strconv.FormatFloat(gpus, 'g', 4, 64) }

// writeWait writes a line for each task.
func writeWait(w io.Writer, all []WaitIdle) {
	for i := range all {
		name := "Idle GPUs"
		if len(all) > 1 {
			name += ", " + all[i].Task
		}
		fmt.Fprintf(w, "%s\t%s\n", name, all[i].text())
	}
}
