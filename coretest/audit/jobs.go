package audit

import (
	"slices"
	"strconv"
	"strings"
)

// job is a live job.
type job struct {
	name, queue, class string
	// duration is its run time, which the engine knows if the run has estimates; 0 where the file does not
	// say. checkpoint is the interval at which it saves its progress, or the time in which it does that when it is asked to, if that is less.
	duration, checkpoint int64
	user                 string
	running              int64 // its pods that count as running for the bounds of queues
	gang, locked         bool
	alternatives         bool // the gang runs as one of its tasks at a time
	replaceable          bool // its pods may be moved
	exposed              bool // locked, and bound when such jobs held more than nominal quota
	rank                 rank
	submit               int64
	required             string // topology level
	tasks                []task
	pods                 []pod // nil before the first is bound

	bound     int
	since     int64   // when the first of those was
	binds     counted // of its pods, so far
	ended     int64   // -1 while it lives, and at the end of the run
	whole     int64   // when it first was; -1 before
	evicted   int64   // last; -1 before
	evictions int64   // how often it was evicted; pods told at one instant are one
	domain    string  // of the required level, while pods are bound
	started   bool    // the gang was whole since it was last bound
	held      int64   // GPU of a gang that has not started
	touched   bool    // in auditor.gangs
	alone     []alone
	promised  []*promise // of its pods
	resuming  bool       // in auditor.resuming
	room      *roomPlan  // the last by which others made room for it
	// dissolving tells that the gang lost a node or is evicted: its other pods may take their
	// grace to leave, as long as none is bound again.
	dissolving bool
	stale      int64 // since when it has had too few pods; -1 if it has not
	// onHold says that it failed and must not start; restarts are when it restarted after failures.
	onHold   bool
	restarts []int64
}

// task is a role of a job.
type task struct {
	name        string
	min, pods   int // min must start together
	gpu         int64
	cpu, mem    int64
	models      []string
	conditions  []string
	tolerations []string
	labels      []string
	terms       []term
	bound, done int
}

// term is an affinity term: near or apart from pods with a label.
type term struct {
	apart        bool
	level, label string
}

// alone is a pod of a gang that was bound without one that it must be near to, which
// may be a member that is bound with it.
type alone struct {
	pod  string
	node *node
	term term
}

// pod is where a pod is, and what it holds.
type pod struct {
	node            *node // nil when not bound
	gpus            uint64
	milli, cpu, mem int64
	// since is when it was bound; of a gang, when the first of its pods was.
	since int64
	// ended is how the pod ended by itself, if it did when it was last bound.
	ended string
	// lost says that it left with its node last, whether it was told to leave before or not.
	lost bool
	// to is its second place, while it is being moved.
	to *pod
	// warm is what it holds while it is on standby, nil if it is not.
	warm *pod
	// room is the plan by which it is being moved, if that makes room for a job.
	room *roomPlan
	// promise is the place kept for it since it stopped to start again elsewhere, until it is bound again.
	promise *promise
	// left is where the pod was evicted from, until it is bound again.
	left *left
}

// minds reports whether pods of the job must be near or apart from others, or others
// from them, as far as that can be seen from the job.
func (j *job) minds() bool {
	return slices.ContainsFunc(j.tasks, func(t task) bool { return len(t.terms)+len(t.labels) > 0 })
}

// index returns the number of the pod that is called name, <job>-<number>.
func (j *job) index(name []byte) (int, bool) {
	if len(name) <= len(j.name)+1 || string(name[:len(j.name)]) != j.name || name[len(j.name)] != '-' {
		return 0, false
	}
	i, err := strconv.Atoi(string(name[len(j.name)+1:]))
	total := 0
	for k := range j.tasks {
		total += j.tasks[k].pods
	}
	return i, err == nil && 0 <= i && i < total
}

// pod returns the pod with the number and its task.
func (j *job) pod(i int) (*pod, *task) {
	total := 0
	var of *task
	for k := range j.tasks {
		if of == nil && i < total+j.tasks[k].pods {
			of = &j.tasks[k]
		}
		total += j.tasks[k].pods
	}
	if j.pods == nil {
		j.pods = make([]pod, total)
	}
	return &j.pods[i], of
}

// complete reports whether all pods that must start are bound or done.
func (j *job) complete() bool {
	if j.alternatives {
		return slices.ContainsFunc(j.tasks, func(t task) bool { return t.bound+t.done == t.min })
	}
	return !slices.ContainsFunc(j.tasks, func(t task) bool { return t.bound+t.done < t.min })
}

// gpu returns what all pods of the job need together; of a job with alternatives, those of the first one.
func (j *job) gpu() int64 {
	if j.alternatives {
		return int64(j.tasks[0].pods) * j.tasks[0].gpu
	}
	var sum int64
	for i := range j.tasks {
		sum += int64(j.tasks[i].pods) * j.tasks[i].gpu
	}
	return sum
}

// submissions reads workload.csv.gz, one job ahead.
type submissions struct {
	csvFile
	ahead *job // nil at the end
	more  bool // the reader's row is the first of the job after ahead
}

func openSubmissions(path string) (*submissions, error) {
	in, err := openCSV(path, "job", "task", "queue", "class", "priority", "gang", "pods", "gpu_milli", "cpu_milli", "mem_mib",
		"gpu_models", "submit_s", "locked", "topology", "affinity")
	if err != nil {
		return nil, err
	}
	s := &submissions{csvFile: in}
	if s.more, err = s.csvFile.next(); err == nil {
		err = s.read()
	}
	if err != nil {
		in.close()
		return nil, err
	}
	return s, nil
}

// next returns the next job if it is submitted up to t, else nil.
func (s *submissions) next(t int64) (*job, error) {
	j := s.ahead
	if j == nil || j.submit > t {
		return nil, nil
	}
	return j, s.read()
}

// read reads the rows of a job into ahead.
func (s *submissions) read() (err error) {
	s.ahead = nil
	for s.more && (s.ahead == nil || s.ahead.name == s.text("job")) {
		if s.ahead == nil {
			s.ahead = s.job()
		}
		s.ahead.tasks = append(s.ahead.tasks, s.task())
		if s.err != nil {
			return s.err
		}
		if s.more, err = s.csvFile.next(); err != nil {
			return err
		}
	}
	return nil
}

func (s *submissions) job() *job {
	j := &job{
		name: s.text("job"), queue: s.text("queue"), user: s.optional("user"), class: s.text("class"),
		gang: s.bool("gang"), locked: s.bool("locked"), replaceable: s.optional("mobility") == "replaceable", submit: s.time("submit_s"),
		whole: -1, evicted: -1, ended: -1, stale: -1,
	}
	j.alternatives = s.optional("alternatives") == "true"
	var err error
	if j.rank.priority, err = strconv.ParseInt(s.text("priority"), 10, 64); err != nil {
		s.wrong("priority", "a whole number")
	}
	j.rank.class = j.class
	j.duration, j.checkpoint = s.optionalTime("duration_s"), s.optionalTime("checkpoint_s")
	if within := s.optionalTime("checkpoint_within_s"); within > 0 && (j.checkpoint == 0 || within < j.checkpoint) {
		j.checkpoint = within
	}
	for part := range strings.SplitSeq(s.text("topology"), ";") {
		word, level, ok := strings.Cut(part, "=")
		if !ok {
			word, level = "required", part
		}
		if word == "required" {
			j.required = level
		}
	}
	return j
}

func (s *submissions) task() task {
	t := task{
		name: s.text("task"), gpu: s.int("gpu_milli"), cpu: s.int("cpu_milli"), mem: s.int("mem_mib"),
	}
	low, high, elastic := strings.Cut(s.text("pods"), "-")
	var err error
	if t.min, err = strconv.Atoi(low); err != nil {
		s.wrong("pods", "a number or MIN-MAX")
	}
	t.pods = t.min
	if elastic {
		if t.pods, err = strconv.Atoi(high); err != nil {
			s.wrong("pods", "a number or MIN-MAX")
		}
	}
	if models := s.text("gpu_models"); models != "" {
		t.models = strings.Split(models, "|")
		for i := range t.models {
			t.models[i], _, _ = strings.Cut(t.models[i], "=") // how fast it is there
		}
	}
	if affinity := s.text("affinity"); affinity != "" {
		t.affinity(affinity)
	}
	return t
}

// affinity sorts the elements of the column.
func (t *task) affinity(text string) {
	for element := range strings.SplitSeq(text, ";") {
		word, rest, ok := strings.Cut(element, ":")
		switch {
		case !ok || strings.ContainsAny(word, "=!"):
			t.conditions = append(t.conditions, element)
		case word == "tolerate":
			t.tolerations = append(t.tolerations, rest)
		case word == "label":
			t.labels = append(t.labels, rest)
		case word == "near" || word == "apart":
			level, label, _ := strings.Cut(rest, ":")
			t.terms = append(t.terms, term{word == "apart", level, label})
		}
	}
}

// outcome is a row of jobs.csv.
type outcome struct {
	job, outcome       string
	evictions          int64
	submit, start, end int64   // -1: never
	user               *string // nil in runs of older versions
}

// outcomes reads jobs.csv, one row ahead.
type outcomes struct {
	csvFile
	ahead *outcome
}

func openOutcomes(path string) (*outcomes, error) {
	in, err := openCSV(path, "job", "submit_s", "start_s", "end_s", "evictions", "outcome")
	if err != nil {
		return nil, err
	}
	o := &outcomes{csvFile: in}
	if err := o.read(); err != nil {
		in.close()
		return nil, err
	}
	return o, nil
}

func (o *outcomes) read() error {
	o.ahead = nil
	more, err := o.csvFile.next()
	if err != nil || !more {
		return err
	}
	o.ahead = &outcome{
		job: o.text("job"), outcome: o.text("outcome"), evictions: o.int("evictions"),
		submit: o.time("submit_s"), start: o.time("start_s"), end: o.time("end_s"),
	}
	if _, ok := o.column["user"]; ok {
		user := o.text("user")
		o.ahead.user = &user
	}
	return o.err
}

// next returns the next job that ended before t, else nil. Rows of live jobs
// come last and are not before any time but the end of all.
func (o *outcomes) next(t int64) (*outcome, error) {
	row := o.ahead
	if row == nil || t < endOfTime && (row.end < 0 || row.end >= t) {
		return nil, nil
	}
	return row, o.read()
}
