package workload

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// Muster's own workload file: one row per task, the rows of a job adjacent, jobs in order
// of submission. Columns about the job have the same value in all its rows. pods may be
// MIN-MAX for a gang that starts with MIN of them. topology and affinity are described at
// parseTopology and [affinity].
var musterJobs = jobFormat{
	columns: columns{exact: true, required: []string{"job", "task", "queue", "kind", "class", "priority", "gang",
		"pods", "gpu_milli", "cpu_milli", "mem_mib", "gpu_models", "submit_s", "duration_s", "outcome",
		"checkpoint_s", "locked", "topology", "affinity"}, optional: []string{"mobility", "standby", "user", "profile", "suspend", "combinations", "alternatives", "checkpoint_within_s"}},
	start: func(t *table, _ *Options) nextJob { return (&jobReader{t: t}).next },
}

const (
	jobName = iota
	jobTask
	jobQueue
	jobKind
	jobClass
	jobPriority
	jobGang
	jobPods
	jobGPU
	jobCPU
	jobMem
	jobModels
	jobSubmit
	jobDuration
	jobOutcome
	jobCheckpoint
	jobLocked
	jobTopology
	jobAffinity
	jobMobility
	jobStandby
	jobUser
	jobProfile
	jobSuspend
	jobCombinations
	jobAlternatives
	jobSaveWithin
)

// Names of the classes and outcomes in files.
var (
	classes  = []string{core.HP.String(), core.LP.String()}
	outcomes = []string{Completed.String(), Failed.String(), Cancelled.String()}
)

// jobReader gathers the rows of each job. It looks one row ahead.
type jobReader struct {
	t *table
	// ahead is set if the table's row is the first of the next job, ended if there is no
	// next job.
	ahead, ended bool

	names      interned[string]
	models     interned[[]string]
	topologies interned[core.TopologyRequest]
	affinities interned[affinity]
	windows    interned[[]Window]
	suspends   interned[core.Suspension]
}

// next is a nextJob.
func (r *jobReader) next() (Job, int, error) {
	if r.ended {
		return Job{}, 0, io.EOF
	}
	if !r.ahead {
		if err := r.t.next(); err != nil {
			return Job{}, r.t.line, err
		}
	}
	line := r.t.line
	j := r.row()
	combinations := r.names.get(r.t.text(jobCombinations), clone)
	for r.t.err == nil {
		err := r.t.next()
		if err == io.EOF {
			r.ended = true
			return j, line, r.combine(&j, combinations, line)
		}
		if err != nil {
			return Job{}, r.t.line, err
		}
		if string(r.t.field(jobName)) != j.Name {
			r.ahead = true
			return j, line, r.combine(&j, combinations, line)
		}
		if r.join(&j); string(r.t.text(jobCombinations)) != combinations {
			r.t.wrong(jobCombinations, fmt.Sprintf("the same as in the row above, of the same job %q", j.Name))
		}
	}
	return Job{}, line, r.t.err
}

// combine adds the combinations of GPU models that a job, whose first row is on a line, lists. Tasks that name no model are on those. It checks what
// the rows of a job say together.
func (r *jobReader) combine(j *Job, list string, line int) error {
	if list == "" && !j.Alternatives {
		return nil
	}
	if list == "" {
		if err := core.CheckJob(&j.Job); err != nil {
			return &Error{File: r.t.file, Line: line, Field: "alternatives", Want: err.Error()}
		}
		return nil
	}
	var err error
	if j.Combinations, err = core.ParseCombinations(strings.Split(list, "|"), j.Tasks); err == nil {
		for t := range j.Tasks {
			if len(j.Tasks[t].Models) == 0 {
				j.Tasks[t].Models = core.CombinedModels(j.Combinations, t)
			}
		}
		err = core.CheckJob(&j.Job)
	}
	if err != nil {
		return &Error{File: r.t.file, Line: line, Field: "combinations", Want: err.Error()}
	}
	return nil
}

// row reads a row as a job of one task.
func (r *jobReader) row() Job {
	t := r.t
	var j Job
	j.Name = string(t.name(jobName))
	j.Queue = r.names.get(t.name(jobQueue), clone)
	j.User = r.names.get(t.text(jobUser), clone)
	j.Profile = r.names.get(t.text(jobProfile), clone)
	j.Kind = core.Kind(t.choice(jobKind, core.Kinds[:]))
	j.Class = core.Class(t.choice(jobClass, classes))
	j.Priority = int32(t.signed(jobPriority, 1<<31-1))
	j.Gang = t.bool(jobGang)
	j.Locked = t.bool(jobLocked)
	if len(t.field(jobMobility)) > 0 {
		j.Mobility = core.Mobility(t.choice(jobMobility, core.Mobilities[:]))
	}
	j.Standby = r.standby(j.Class)
	j.Suspend = r.suspend()
	j.Alternatives = len(t.text(jobAlternatives)) > 0 && t.bool(jobAlternatives)
	j.Submitted = t.seconds(jobSubmit)
	j.Duration = t.seconds(jobDuration)
	j.Checkpoint = t.seconds(jobCheckpoint)
	if len(t.text(jobSaveWithin)) > 0 {
		j.SaveWithin = t.seconds(jobSaveWithin)
	}
	j.Outcome = Outcome(t.choice(jobOutcome, outcomes))
	j.Topology = r.topology()
	a := r.affinity()
	j.Tasks = []core.Task{r.task(j.Gang, &a)}
	return j
}

// task reads the columns of a row that are about the task.
func (r *jobReader) task(gang bool, a *affinity) core.Task {
	t := r.t
	task := core.Task{Name: r.names.get(t.text(jobTask), clone), Labels: a.labels, Affinity: a.terms, Prefers: a.prefers}
	task.Pods, task.MinPods = t.pods(gang)
	task.Request = core.Request{
		GPU:         t.gpu(jobGPU),
		CPUMilli:    t.count(jobCPU, 0, maxCPUMilli),
		MemMiB:      t.count(jobMem, 0, maxMemMiB),
		Selector:    a.selector,
		Tolerations: a.tolerations,
	}
	if models := t.text(jobModels); len(models) > 0 {
		task.Models = r.models.get(models, splitModels)
		if slices.Contains(task.Models, "") {
			t.wrong(jobModels, "GPU models separated by |")
		}
		if err := task.Accept(task.Models); err != nil {
			t.wrong(jobModels, err.Error())
		}
	}
	return task
}

// standby reads the windows of a job.
func (r *jobReader) standby(class core.Class) []Window {
	text := r.t.text(jobStandby)
	if len(text) == 0 {
		return nil
	}
	if class != core.HP {
		r.t.wrong(jobStandby, "nothing, as only HP jobs lend their GPUs")
	}
	return r.windows.get(text, func(s string) []Window {
		v, err := parseStandby(s)
		r.t.fail(jobStandby, err)
		return v
	})
}

// suspend reads what it takes to suspend a job.
func (r *jobReader) suspend() core.Suspension {
	text := r.t.text(jobSuspend)
	if len(text) == 0 {
		return core.Suspension{}
	}
	return r.suspends.get(text, func(s string) core.Suspension {
		v, err := ParseSuspension(s)
		r.t.fail(jobSuspend, err)
		return v
	})
}

func (r *jobReader) topology() core.TopologyRequest {
	text := r.t.text(jobTopology)
	if len(text) == 0 {
		return core.TopologyRequest{}
	}
	return r.topologies.get(text, func(s string) core.TopologyRequest {
		v, err := parseTopology(s)
		r.t.fail(jobTopology, err)
		return v
	})
}

func (r *jobReader) affinity() affinity {
	text := r.t.text(jobAffinity)
	if len(text) == 0 {
		return affinity{}
	}
	return r.affinities.get(text, func(s string) affinity {
		v, err := parseAffinity(s)
		r.t.fail(jobAffinity, err)
		return v
	})
}

// join adds the task of the table's row to the job of the previous row.
func (r *jobReader) join(j *Job) {
	k := r.row()
	for _, agreed := range []struct {
		column int
		same   bool
	}{
		{jobQueue, k.Queue == j.Queue},
		{jobUser, k.User == j.User},
		{jobProfile, k.Profile == j.Profile},
		{jobKind, k.Kind == j.Kind},
		{jobClass, k.Class == j.Class},
		{jobPriority, k.Priority == j.Priority},
		{jobGang, k.Gang == j.Gang},
		{jobSubmit, k.Submitted == j.Submitted},
		{jobDuration, k.Duration == j.Duration},
		{jobOutcome, k.Outcome == j.Outcome},
		{jobCheckpoint, k.Checkpoint == j.Checkpoint},
		{jobLocked, k.Locked == j.Locked},
		{jobMobility, k.Mobility == j.Mobility},
		{jobStandby, slices.Equal(k.Standby, j.Standby)},
		{jobSuspend, k.Suspend == j.Suspend},
		{jobTopology, k.Topology == j.Topology},
		{jobAlternatives, k.Alternatives == j.Alternatives},
		{jobSaveWithin, k.SaveWithin == j.SaveWithin},
	} {
		if !agreed.same {
			r.t.wrong(agreed.column, fmt.Sprintf("the same as in the row above, of the same job %q", j.Name))
		}
	}
	task := &k.Tasks[0]
	if slices.ContainsFunc(j.Tasks, func(o core.Task) bool { return o.Name == task.Name }) {
		r.t.wrong(jobTask, fmt.Sprintf("a task named once in job %q", j.Name))
	}
	if len(j.Tasks) == maxTasks || j.Pods()+task.Pods > maxPods {
		r.t.wrong(jobPods, fmt.Sprintf("at most %d tasks and %d pods in job %q", maxTasks, maxPods, j.Name))
	}
	j.Tasks = append(j.Tasks, *task)
}

// choice reads one of the given words and returns its index.
func (t *table) choice(c int, words []string) int {
	f := t.field(c)
	for i, w := range words {
		if string(f) == w {
			return i
		}
	}
	t.wrong(c, "one of "+strings.Join(words, ", "))
	return 0
}

// bool reads true or false.
func (t *table) bool(c int) bool {
	switch string(t.field(c)) {
	case "true":
		return true
	case "false":
		return false
	}
	t.wrong(c, "true or false")
	return false
}

// signed reads a whole number between -most-1 and most.
func (t *table) signed(c int, most int64) int64 {
	digits, negative := bytes.CutPrefix(t.field(c), []byte("-"))
	v, ok := parseDecimal(digits, 0)
	if negative {
		v = -v
	}
	if !ok || v < -most-1 || v > most {
		t.wrong(c, fmt.Sprintf("a whole number %d..%d", -most-1, most))
		return 0
	}
	return v
}

// gpu reads a pod's GPUs: a part of one device, or whole devices.
func (t *table) gpu(c int) core.Milli {
	v, ok := parseDecimal(t.field(c), 0)
	m := core.Milli(v)
	if !ok || m > cluster.MaxGPUs*core.WholeGPU || m > core.WholeGPU && m%core.WholeGPU != 0 {
		t.wrong(c, fmt.Sprintf("milli-GPUs 0..1000 or whole GPUs up to %d", cluster.MaxGPUs*core.WholeGPU))
		return 0
	}
	return m
}

// pods reads a number of pods, with the fewest to start with in a gang.
func (t *table) pods(gang bool) (pods, minPods int) {
	low, high, ranged := bytes.Cut(t.field(jobPods), []byte("-"))
	if !ranged {
		return int(t.count(jobPods, 1, maxPods)), 0
	}
	least, ok1 := parseDecimal(low, 0)
	most, ok2 := parseDecimal(high, 0)
	if !ok1 || !ok2 || least < 1 || most < least || most > maxPods {
		t.wrong(jobPods, fmt.Sprintf("pods 1..%d or MIN-MAX", maxPods))
		return 1, 0
	}
	if !gang {
		t.wrong(jobPods, "one number of pods, because only gangs have a minimum")
	}
	return int(most), int(least)
}

// fail records an error that says what was expected in a column and what was found.
func (t *table) fail(c int, err error) {
	if err != nil && t.err == nil {
		t.err = t.fault(t.header[t.index[c]], err.Error())
	}
}

// interned caches parsed values by their text, so that a column of few values costs
// nothing per row. All rows with the same text share one value.
type interned[V any] struct{ values map[string]V }

// mostInterned bounds the memory for a column of many values.
const mostInterned = 1 << 14

func (n *interned[V]) get(text []byte, parse func(string) V) V {
	if v, ok := n.values[string(text)]; ok {
		return v
	}
	if n.values == nil || len(n.values) == mostInterned {
		n.values = make(map[string]V)
	}
	s := string(text)
	v := parse(s)
	n.values[s] = v
	return v
}

func clone(s string) string { return s }

func splitModels(s string) []string { return strings.Split(s, "|") }
