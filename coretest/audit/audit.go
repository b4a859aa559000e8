// Package audit checks a run folder against Muster's invariants. It reads the
// files alone and shares nothing with the engine's accounting: it rebuilds every
// allocation from decisions.jsonl.gz. It holds the live jobs and their pods, and
// of the HP jobs that ended only a hash of the name.
package audit

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-sched/muster/workload"
)

// The invariants, as violations name them.
const (
	// Format: a line that is not a decision as the format has it.
	Format = "format"
	// Order: time goes back.
	Order = "order"
	// Device: more than the whole of a GPU is allocated, or one that the node
	// has not or that is unhealthy.
	Device = "device"
	// Sharing: a GPU is allocated whole and in part at once.
	Sharing = "sharing"
	// CPU and Memory: more than the node has is allocated.
	CPU    = "cpu"
	Memory = "memory"
	// Node: a pod is on a node that is not there, lost or cordoned.
	Node = "node"
	// Request: a pod gets something else than its task asks for.
	Request = "request"
	// Model: a pod is on a GPU model that its task does not accept.
	Model = "model"
	// Gang: part of a gang is bound at the end of an instant.
	Gang = "gang"
	// Pod: a pod is bound while it is bound or done, or released otherwise
	// than it was bound.
	Pod = "pod"
	// Lifetime: a pod is bound before its job was submitted or after it ended,
	// or outlives it.
	Lifetime = "lifetime"
	// Locked: a locked job is moved, or evicted though it was not found running with
	// more than nominal quota covers.
	Locked = "locked"
	// Move: a pod is moved that is not bound, is being moved already or belongs to a job that
	// stays; or a move ends that is none; or a pod is released while it is being moved.
	Move = "move"
	// Standby: a pod that is not LP is on GPUs that another lent; or an owner is not back within the
	// bound, at the moment when its GPUs are free or, for its CPU and memory, another pod has left lent GPUs of the node; or a pod is on standby that cannot be.
	Standby = "standby"
	// Return: an evicted pod is back in its place before the job that it left for has
	// started, though nothing happened for which that plan could have been given up.
	Return = "return"
	// Restart: a pod that restarts elsewhere, to make room for a job, to free a node, or as requested,
	// starts otherwise than in the place kept for it, or later than it could; or ranks above that job; or
	// that place was not free from the decision on, if it should have been; or the policy allows no such plan.
	Restart = "restart"
	// HPOnly: a pod is evicted for an LP job, which the policy forbids.
	HPOnly = "hp_only"
	// Delay: a pod is evicted for a job that has waited for less time than the policy says.
	Delay = "preempt_delay"
	// Lease: a pod leaves for a job that has received less, before its own lease is over or though the
	// policy has no leases.
	Lease = "lease"
	// Turn: under the order LongTermFairness, a job starts in a place that one could have had whose queue had received less of the
	// GPU time that it deserved, or that came before it in its queue.
	Turn = "turn"
	// Stale: a gang has fewer pods than its minimum for longer than the policy allows.
	Stale = "stale"
	// Recovery: a job that is held after a failure starts, restarts or is held again; or one restarts after failures more often within a day than
	// the policy allows.
	Recovery = "recovery"
	// HPExpected: an LP job starts though HP jobs are expected to need its GPUs before it has saved its
	// progress, and the policy puts such jobs off.
	HPExpected = "hp_expected"
	// OwnQueue: a job is preempted for a job of another queue, which the policy forbids.
	OwnQueue = "own_queue"
	// CPUReserve: a job without GPUs takes cores that the policy keeps for idle GPUs.
	CPUReserve = "cpu_reserve"
	// Class: an HP job is evicted for an LP job, or for none that is named.
	Class = "class"
	// Topology: a job is not within one domain of the level it requires.
	Topology = "topology"
	// Affinity: a selector, a taint or an affinity term is not heeded.
	Affinity = "affinity"
	// Quota: an Isolated queue uses more than its nominal quota.
	Quota = "quota"
	// Running: a queue, or a user there, runs more jobs or GPUs than the queue allows.
	Running = "running"
	// Conservation: jobs.csv or summary.json lose or invent a job.
	Conservation = "conservation"
	// Hash: summary.json has another SHA-256 than decisions.jsonl.gz.
	Hash = "hash"
	// Metric: summary.json or jobs.csv has another figure than the decisions give.
	Metric = "metric"
)

// Violation is a breach of an invariant.
type Violation struct {
	Invariant string `json:"invariant"`
	// Line counts the lines of decisions.jsonl.gz from 1; it is the last one
	// read when the breach shows elsewhere.
	Line   int64  `json:"line"`
	Detail string `json:"detail"`
}

func (v Violation) String() string {
	return fmt.Sprintf("line %d: %s: %s", v.Line, v.Invariant, v.Detail)
}

// Report is the outcome of an audit.
type Report struct {
	// Lines, Jobs and Nodes say how much was checked.
	Lines int64 `json:"lines"`
	Jobs  int64 `json:"jobs"`
	Nodes int   `json:"nodes"`
	// Count is how many violations there are, Violations the first of them.
	Count      int64       `json:"count"`
	Violations []Violation `json:"violations"`
}

// most bounds Report.Violations.
const most = 20

// OK reports whether there is no violation.
func (r Report) OK() bool { return r.Count == 0 }

// WriteText writes a line for each violation that is kept, and what was checked.
func (r Report) WriteText(w io.Writer) error {
	for _, v := range r.Violations {
		if _, err := fmt.Fprintln(w, v); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "checked %d decisions, %d jobs, %d nodes: %d violations\n", r.Lines, r.Jobs, r.Nodes, r.Count)
	return err
}

// String says what was checked and lists the violations that are kept.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d decisions, %d jobs, %d nodes: ", r.Lines, r.Jobs, r.Nodes)
	if r.OK() {
		return b.String() + "every invariant holds\n"
	}
	fmt.Fprintf(&b, "%d violations\n", r.Count)
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "  %v\n", v)
	}
	if more := r.Count - int64(len(r.Violations)); more > 0 {
		fmt.Fprintf(&b, "  and %d more\n", more)
	}
	return b.String()
}

// Audit checks the run in dir. The error is bad input (see
// [workload.IsBadInput]) when a file is missing or cannot be read as what it
// should be; breaches of invariants are in the report.
func Audit(dir string) (Report, error) {
	a := &auditor{jobs: map[string]*job{}, endedHP: map[uint64]bool{}, labels: map[labelAt]int{}, apart: map[labelAt]int{}, settled: map[labelAt]bool{}, plans: map[planKey]*roomPlan{}, promised: map[*promise]*job{}}
	defer a.close()
	if err := a.open(dir); err != nil {
		return Report{}, err
	}
	if err := a.log.each(a.take); err != nil {
		return Report{}, err
	}
	if err := a.finish(); err != nil {
		return Report{}, err
	}
	return a.report, nil
}

// auditor is the state of an audit. Times are nanoseconds.
type auditor struct {
	report  Report
	summary summary
	log     *decisions
	sub     *submissions // workload.csv.gz
	ends    *outcomes    // jobs.csv
	changes *changes     // nodes.csv
	queues  map[string]*queue
	nodes   map[string]*node
	jobs    map[string]*job // live
	endedHP map[uint64]bool // hashes of the names of HP jobs that ended
	// labels counts the bound pods with a label, apart those that must be apart from it,
	// by the domains in which they must.
	labels, apart map[labelAt]int
	// settled are the domains of a label with pods that need no others there: they were its first
	// anywhere, or need not be near it.
	settled map[labelAt]bool
	// shifts counts changes of nodes, parted the pods with labels or terms that ended; returned
	// are pods that came back where they were evicted from at now.
	shifts, parted counted
	returned       []returned
	// plans are those by which pods moved or restarted for a job; promised are the places kept
	// that queues are charged for, resuming the jobs of which pods started again at now.
	plans     map[planKey]*roomPlan
	promised  map[*promise]*job
	resuming  []*job
	shortages []shortage // in order of time
	forecast  *forecast
	moving    int // pods that are being moved
	inTime    *inTime
	stale     []stale // gangs that had too few pods, in order of time

	now     int64
	gangs   []*job  // touched at now
	lost    []*node // lost at now
	counts  jobCounts
	measure measure
}

// summary is the part of summary.json that is checked.
type summary struct {
	Hash   string `json:"decision_sha256"`
	Rules  *rules // nil in runs of older versions
	Window struct {
		From float64 `json:"from_s"`
		To   float64 `json:"to_s"`
		Is   string  `json:"is"`
	} `json:"window"`
	Jobs        jobCounts              `json:"jobs"`
	GAR         struct{ Mean float64 } `json:"gar"`
	GFR         struct{ Mean float64 } `json:"gfr"`
	SOR         float64                `json:"sor"`
	Topology    *topology              `json:"topology"` // nil in runs of older versions
	Preemptions int64                  `json:"preemptions"`
	Suspensions int64                  `json:"suspensions"`
	Migrations  int64                  `json:"migrations"`
	Second      float64                `json:"migration_gpu_hours"`
	Evictions   *evictions
	Standby     struct {
		Bound float64 `json:"bound_s"`
	}
	JWTD []struct {
		Class string
		Jobs  int64
		Mean  float64 `json:"mean_s"`
	} `json:"jwtd"`
	// Fragmentation is nil in runs of older versions.
	Fragmentation *fragmentation `json:"fragmentation"`
}

// jobCounts counts jobs by where they stand at the end.
type jobCounts struct {
	Submitted, Completed, Failed, Cancelled, Running, Pending, Rejected int64
}

func (a *auditor) open(dir string) (err error) {
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := readJSON(at("summary.json"), &a.summary); err != nil {
		return err
	}
	a.forecast = newForecast(a.summary.Rules)
	if a.nodes, err = readCluster(at("cluster.csv")); err != nil {
		return err
	}
	if a.queues, err = readQueues(at("queues.json")); err != nil {
		return err
	}
	a.inTime = newInTime(a.summary.Rules, a.queues)
	a.inTime.count(a.nodes)
	if a.changes, err = openChanges(at("nodes.csv")); err != nil {
		return err
	}
	if a.sub, err = openSubmissions(at("workload.csv.gz")); err != nil {
		return err
	}
	if a.ends, err = openOutcomes(at("jobs.csv")); err != nil {
		return err
	}
	if a.log, err = openDecisions(at("decisions.jsonl.gz")); err != nil {
		return err
	}
	a.report.Nodes = len(a.nodes)
	first := int64(-1)
	if a.sub.ahead != nil {
		first = a.sub.ahead.submit
	}
	if err := a.measure.idle.begin(a.nodes, a.summary.Fragmentation); err != nil {
		return badFile(at("summary.json"), err)
	}
	a.measure.begin(a.nodes, &a.summary, first)
	return nil
}

func (a *auditor) close() {
	if a.sub != nil {
		a.sub.close()
	}
	if a.ends != nil {
		a.ends.close()
	}
	if a.log != nil {
		a.log.close()
	}
}

// breach records a violation.
func (a *auditor) breach(invariant, format string, args ...any) {
	a.report.Count++
	if len(a.report.Violations) < most {
		a.report.Violations = append(a.report.Violations,
			Violation{invariant, a.report.Lines, fmt.Sprintf(format, args...)})
	}
}

// take checks a line.
func (a *auditor) take(text []byte) error {
	if err := a.change(); err != nil {
		return err
	}
	a.report.Lines++
	d, err := a.log.parse(text)
	if err != nil {
		a.breach(Format, "%v", err)
		return nil
	}
	if d.t < a.now {
		a.breach(Order, "t goes back from %s to %s", seconds(a.now), seconds(d.t))
		d.t = a.now
	}
	if err := a.advance(d.t); err != nil {
		return err
	}
	j := a.jobs[string(d.job)]
	if j == nil {
		a.breach(Lifetime, "%s of pod %s at %s: its job is not submitted yet, or over", d.op, d.pod, seconds(d.t))
		return nil
	}
	switch string(d.op) {
	case "bind":
		a.bind(j, d)
	case "standby":
		a.standby(j, d)
	case "resume":
		a.resume(j, d)
	case "release":
		a.release(j, d)
	case "migrate":
		a.migrate(j, d)
	case "hold", "restart", "unhold":
		a.recover(j, d)
	default:
		a.breach(Format, "op %q", d.op)
	}
	return nil
}

// change processes the node changes that come before the next line.
func (a *auditor) change() error {
	for c := a.changes.next(a.report.Lines); c != nil; c = a.changes.next(a.report.Lines) {
		if err := a.advance(max(c.t, a.now)); err != nil {
			return err
		}
		n := a.nodes[c.node]
		if n == nil {
			a.breach(Node, "nodes.csv: node %s is not in cluster.csv", c.node)
			continue
		}
		a.shifted(c.t)
		a.measure.before(n)
		n.up, n.cordoned, n.unhealthy = c.up, c.cordoned, c.unhealthy
		a.measure.after(n)
		a.inTime.count(a.nodes)
		if !n.up {
			a.lost = append(a.lost, n)
		}
	}
	return nil
}

// advance moves on to t, and checks what must hold at the end of an instant.
func (a *auditor) advance(t int64) error {
	if t > a.now {
		a.settle()
		a.short(t)
		a.putOff(t)
		a.outOfOrder(t)
		a.stopped(t)
		a.forecast.advance(t)
		a.measure.until(t)
		a.measure.event(t)
		a.now = t
	}
	if err := a.submit(t); err != nil {
		return err
	}
	if err := a.end(t); err != nil {
		return err
	}
	a.inTime.advance(t)
	if len(a.returned) > 0 && t > a.returned[0].t {
		a.inPlace()
	}
	return nil
}

// settle checks what must hold when an instant is over.
func (a *auditor) settle() {
	for _, j := range a.gangs {
		a.whole(j)
		a.stalls(j)
		a.beside(j)
		j.touched = false
	}
	a.gangs = a.gangs[:0]
	a.restarted()
	for _, n := range a.lost {
		if !n.up && n.pods > 0 {
			a.breach(Node, "node %s is lost at %s and has %d pods still", n.name, seconds(a.now), n.pods)
		}
	}
	a.lost = a.lost[:0]
}

// whole checks that a gang is whole or not bound at all. Pods that finished
// are no loss, and a gang that lost a node is on its way out.
func (a *auditor) whole(j *job) {
	if j.bound == 0 || j.dissolving {
		return
	}
	for i := range j.tasks {
		t := &j.tasks[i]
		if j.alternatives && t.bound == 0 {
			continue
		}
		if t.bound+t.done < t.min || j.alternatives && t.bound != j.bound {
			a.breach(Gang, "gang %s at %s: task %q has %d of %d pods bound, the whole job %d",
				j.name, seconds(a.now), t.name, t.bound, t.min, j.bound)
			return
		}
	}
}

// submit processes the jobs submitted up to t.
func (a *auditor) submit(t int64) error {
	for {
		j, err := a.sub.next(t)
		if j == nil || err != nil {
			return err
		}
		if a.jobs[j.name] != nil {
			a.breach(Conservation, "job %s is submitted twice", j.name)
			continue
		}
		a.report.Jobs++
		a.counts.Submitted++
		a.jobs[j.name] = j
		a.inTime.submitted(j)
		a.measure.event(j.submit)
	}
}

// end processes the jobs that ended before t: those of an instant end after its
// decisions.
func (a *auditor) end(t int64) error {
	for {
		o, err := a.ends.next(t)
		if o == nil || err != nil {
			return err
		}
		j := a.jobs[o.job]
		if j == nil {
			a.breach(Conservation, "jobs.csv: job %s (%s) is not submitted before its end, or ends twice", o.job, o.outcome)
			continue
		}
		a.over(j, o)
	}
}

// nameHash is short for a name: of a run's names two have the same one with a chance
// of less than one in a hundred thousand.
func nameHash(name string) uint64 {
	h := fnv.New64a()
	io.WriteString(h, name)
	return h.Sum64()
}

// over checks the row of a job in jobs.csv against what became of it.
func (a *auditor) over(j *job, o *outcome) {
	delete(a.jobs, j.name)
	j.ended = o.end
	a.inTime.over(j, o.end)
	if j.class == "HP" {
		a.endedHP[nameHash(j.name)] = true
	}
	live := o.outcome == "running" || o.outcome == "pending"
	if live != (o.end < 0) {
		a.breach(Conservation, "jobs.csv: job %s is %s with end_s %s", j.name, o.outcome, seconds(o.end))
	}
	if live {
		a.waits(j, max(a.now, a.measure.last))
	}
	for _, x := range j.promised {
		a.discharge(x, j)
	}
	switch {
	case o.outcome == "running" && j.bound == 0, o.outcome == "pending" && j.bound > 0:
		a.breach(Conservation, "jobs.csv: job %s is %s with %d pods bound", j.name, o.outcome, j.bound)
	case !live && j.bound > 0:
		a.breach(Lifetime, "job %s ends at %s with %d pods bound", j.name, seconds(o.end), j.bound)
	case o.outcome == "rejected" && j.whole >= 0:
		a.breach(Lifetime, "job %s is rejected after it ran", j.name)
	}
	if o.submit != j.submit || o.start != j.whole {
		a.breach(Conservation, "jobs.csv: job %s submitted %s, started %s; it was submitted %s, started %s",
			j.name, seconds(o.submit), seconds(o.start), seconds(j.submit), seconds(j.whole))
	}
	if o.user != nil && *o.user != j.user {
		a.breach(Conservation, "jobs.csv: job %s is of user %q; the workload has %q", j.name, *o.user, j.user)
	}
	if o.evictions != j.evictions {
		a.breach(Metric, "jobs.csv: job %s has %d evictions, the decisions give %d", j.name, o.evictions, j.evictions)
	}
	if n := a.counts.of(o.outcome); n != nil {
		*n++
	} else {
		a.breach(Conservation, "jobs.csv: job %s has outcome %q", j.name, o.outcome)
	}
	if o.end >= 0 {
		a.measure.event(o.end)
	}
}

// of returns the count of an outcome.
func (c *jobCounts) of(outcome string) *int64 {
	switch outcome {
	case "completed":
		return &c.Completed
	case "failed":
		return &c.Failed
	case "cancelled":
		return &c.Cancelled
	case "rejected":
		return &c.Rejected
	case "running":
		return &c.Running
	case "pending":
		return &c.Pending
	}
	return nil
}

// finish processes what comes after the last line and compares the summary.
func (a *auditor) finish() error {
	if err := a.change(); err != nil {
		return err
	}
	if c := a.changes.left(); c > 0 {
		a.breach(Format, "nodes.csv: %d changes come after more lines than there are", c)
	}
	a.settle()
	a.short(max(a.now, a.measure.last))
	a.putOff(max(a.now, a.measure.last))
	a.outOfOrder(endOfTime)
	for _, rest := range []func(int64) error{a.submit, a.end} {
		if err := rest(endOfTime); err != nil {
			return err
		}
	}
	a.inPlace()
	for _, name := range slices.Sorted(maps.Keys(a.jobs)) {
		a.breach(Conservation, "job %s is missing in jobs.csv", name)
	}
	if a.counts != a.summary.Jobs {
		a.breach(Conservation, "summary.json has jobs %+v, jobs.csv %+v", a.summary.Jobs, a.counts)
	}
	if sum := a.log.sum(); sum != a.summary.Hash {
		a.breach(Hash, "decisions.jsonl.gz has SHA-256 %s, summary.json %s", sum, a.summary.Hash)
	}
	a.measure.compare(a.breach)
	return nil
}

func readJSON(path string, v any) error {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		return badFile(path, err)
	}
	return nil
}

// badFile says that a file of the run cannot be read.
func badFile(path string, err error) error {
	return &workload.Error{File: path, Want: fmt.Sprintf("a file of a run: %v", err)}
}
