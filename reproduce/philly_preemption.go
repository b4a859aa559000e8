package reproduce

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/workload"
)

var phillyPreemption = Experiment{
	Name:  "philly-preemption",
	Title: "QSSF, SRTF and Tiresias on Philly jobs, compared with our runs of Lucid's simulator",
	Takes: []string{"traces"},
	run:   runPhillyPreemption,
}

// phillyClassics are the mean completion times that Lucid's authors' simulator gave when we ran it, in seconds, by set and policy. It
// was not run with SRTF on OCT.
var phillyClassics = []struct {
	set              string
	qssf, tire, srtf float64
}{{"W1", 29_793, 34_748, 29_283}, {"W1s", 10_177, 9_553, 7_826}, {"OCT", 29_238, 30_183, 0}}

// The band, and that of the model of QSSF, which is exact but for the order of jobs that come in the same second.
const modelBand, qssfModelBand = 0.03, 0.001

func runPhillyPreemption(ctx context.Context, o Options) (Result, error) {
	file, err := o.trace("philly/jobs.csv.gz", "Philly, job level")
	if err != nil {
		return nil, err
	}
	t := &Table{Caption: "Mean JCT of Philly jobs (Jeon et al., ATC 2019) of 2017-10-01 and after, nodes of 8 GPUs, placement by the consolidate rule, known run times;\n" +
		"compared with our runs of the code of Lucid's authors (Hu et al., ASPLOS 2023): " + lucidCode + ".\n" +
		"None of them is a published figure. " + phillyNodes()}
	for i, s := range phillySets {
		theirs := phillyClassics[i]
		jobs, err := s.load(file)
		if err != nil {
			return nil, err
		}
		jobs = s.tieOrder(jobs)
		for k := range jobs {
			jobs[k].Checkpoint = core.Second // nothing is lost but the seconds that a preemption costs
		}
		o.say("%s: %d jobs, QSSF", s.name, len(jobs))
		qssf, err := s.run(ctx, jobs, "QSSF")
		if err != nil {
			return nil, err
		}
		t.Rows = append(t.Rows, rerun(within(s.name+" QSSF, our model of their rule", theirs.qssf, s.sortNewByGPUs(jobs), qssfModelBand, "s")),
			rerun(within(s.name+" QSSF", theirs.qssf, qssf.jct, modelBand, "s")).because("theirs tries jobs that come while none waits in the order of their GPUs"))
		for _, p := range []struct {
			name, policy string
			theirs       float64
			key          func(*counted) int64
		}{{"Tiresias", "Tiresias", theirs.tire, tiresiasLevel}, {"SRTF", "LucidSRTF", theirs.srtf, remaining}} {
			if p.theirs == 0 {
				continue
			}
			o.say("%s: %d jobs, %s", s.name, len(jobs), p.name)
			ours, err := s.run(ctx, jobs, p.policy)
			if err != nil {
				return nil, err
			}
			t.Rows = append(t.Rows,
				rerun(within(s.name+" "+p.name+", our model of their rule", p.theirs, s.countFirst(jobs, p.key, false), modelBand, "s")),
				rerun(atMost(s.name+" "+p.name, p.theirs, p.theirs, ours.jct, "s")))
			t.Notes = append(t.Notes, fmt.Sprintf("%s %s: by the same model, if what stays idle goes to the next jobs in the order, mean JCT %.0f s.", s.name, p.name,
				s.countFirst(jobs, p.key, true)))
		}
	}
	t.Notes = append(t.Notes, strings.Join([]string{
		"Under SRTF and Tiresias, Lucid's simulator first counts: jobs in order get GPUs until none are left, the others are preempted. Then it looks for places.",
		"A job that finds none keeps what was counted for it, and these GPUs stay idle. Muster evicts only together with a place for the job: so its JCT is lower.",
		"QSSF there orders jobs that come while none waits by their GPUs, whatever they take. The model does that, too, and is otherwise as Muster."}, "\n"))
	return t, nil
}

// rerun marks a row whose reference is what the authors' code gave when we ran it.
func rerun(r Row) Row {
	r.Rerun = true
	return r
}

// counted is a job of the model; times are seconds.
type counted struct {
	gpus            int
	submitted, left int64
	attained        int64 // GPU-seconds
	runs, preempted bool
	nodes, had      []part // where it runs; where it ran before it was preempted
}

// part is so many GPUs of a node.
type part struct{ node, gpus int }

func remaining(j *counted) int64 { return j.left }

// tiresiasLevel is 0 for a job that has attained at most 18,000 GPU-seconds, else 1.
func tiresiasLevel(j *counted) int64 {
	if j.attained > 18_000 {
		return 1
	}
	return 0
}

// modelStep is how often the model looks: a minute as Tiresias does there. SRTF looks each second there.
const modelStep = 60

// countFirst replays jobs on nodes of 8 GPUs by the rule of Lucid's simulator, and returns their mean JCT. At each step the jobs in the order
// of their keys, then of their submission, get GPUs by count; those that run and get none are preempted, which costs 40 s, or 60 s beyond
// 8 GPUs; and those that wait look for places. With fill, jobs then take what is left in the same order.
func (s *phillySet) countFirst(jobs []workload.Job, key func(*counted) int64, fill bool) float64 {
	free := s.allFree()
	var live []*counted
	sum, next := int64(0), 0
	for now, last := int64(0), int64(0); next < len(jobs) || len(live) > 0; now += modelStep {
		// 1. What has ended since, and has come.
		live = slices.DeleteFunc(live, func(j *counted) bool {
			if !j.runs {
				return false
			}
			ran := min(j.left, now-last)
			j.left, j.attained = j.left-ran, j.attained+ran*int64(j.gpus)
			if j.left == 0 {
				sum += last + ran - j.submitted
				free.give(j.nodes)
			}
			return j.left == 0
		})
		for ; next < len(jobs) && int64(jobs[next].Submitted/core.Second) <= now; next++ {
			live = append(live, newCounted(&jobs[next]))
		}
		last = now

		// 2. Who runs, and where.
		slices.SortStableFunc(live, func(a, b *counted) int {
			return cmp.Or(cmp.Compare(key(a), key(b)), cmp.Compare(a.submitted, b.submitted))
		})
		free.replace(live, 8*len(free), fill)

		// 3. Nothing happens before the next job.
		if len(live) == 0 && next < len(jobs) {
			now = max(now, int64(jobs[next].Submitted/core.Second)/modelStep*modelStep-modelStep)
		}
	}
	return float64(sum) / float64(len(jobs))
}

// sortNewByGPUs replays jobs by the rule of QSSF in Lucid's simulator, and returns their mean JCT. The queue is strict and ordered by GPU time, then GPUs; but jobs that
// come while none waits are tried in the order of their GPUs.
func (s *phillySet) sortNewByGPUs(jobs []workload.Job) float64 {
	free := s.allFree()
	var waiting, running []*counted
	sum, next := int64(0), 0
	for next < len(jobs) || len(running) > 0 {
		// 1. What ends next, or comes. left is when a running job ends.
		now := int64(math.MaxInt64)
		if next < len(jobs) {
			now = int64(jobs[next].Submitted / core.Second)
		}
		for _, j := range running {
			now = min(now, j.left)
		}
		running = slices.DeleteFunc(running, func(j *counted) bool {
			if j.left == now {
				sum += now - j.submitted
				free.give(j.nodes)
			}
			return j.left == now
		})
		old := len(waiting)
		for ; next < len(jobs) && int64(jobs[next].Submitted/core.Second) == now; next++ {
			waiting = append(waiting, newCounted(&jobs[next]))
		}

		// 2. Who starts.
		slices.SortStableFunc(waiting, func(a, b *counted) int { return cmp.Compare(a.gpus, b.gpus) })
		if old > 0 {
			slices.SortStableFunc(waiting, func(a, b *counted) int { return cmp.Compare(a.left*int64(a.gpus), b.left*int64(b.gpus)) })
		}
		for len(waiting) > 0 {
			j := waiting[0]
			if j.nodes, j.runs = free.take(j.gpus); !j.runs {
				break
			}
			j.left += now
			waiting, running = waiting[1:], append(running, j)
		}
	}
	return float64(sum) / float64(len(jobs))
}

// newCounted returns a job as the models see it.
func newCounted(j *workload.Job) *counted {
	return &counted{gpus: int(j.GPUs() / core.WholeGPU), submitted: int64(j.Submitted / core.Second), left: max(1, int64(j.Duration/core.Second))}
}

// allFree returns the nodes of the set, all idle.
func (s *phillySet) allFree() freeGPUs {
	var nodes int
	if _, err := fmt.Sscanf(s.cluster, "%dx8", &nodes); err != nil {
		panic(err) // the clusters are constants
	}
	return slices.Repeat(freeGPUs{8}, nodes)
}

// freeGPUs is how many GPUs each node has left.
type freeGPUs []int

// replace decides which of the jobs run, in order.
func (f freeGPUs) replace(live []*counted, count int, fill bool) {
	var starts []*counted
	for _, j := range live {
		j.preempted = false
		switch {
		case j.gpus <= count:
			if count -= j.gpus; !j.runs {
				starts = append(starts, j)
			}
		case j.runs:
			f.give(j.nodes)
			j.runs, j.preempted, j.had = false, true, j.nodes
		}
	}
	for _, j := range starts {
		j.nodes, j.runs = f.take(j.gpus)
	}
	for _, j := range live {
		if fill && !j.runs {
			if j.preempted && f.has(j.had) {
				f.give(negative(j.had))
				j.nodes, j.runs, j.preempted = j.had, true, false
				continue
			}
			j.nodes, j.runs = f.take(j.gpus)
		}
	}
	for _, j := range live {
		switch {
		case j.preempted && j.gpus <= 8:
			j.left += 40
		case j.preempted:
			j.left += 60
		}
	}
}

// take returns places by the consolidate rule: on the fullest node that fits; beyond 8 GPUs on idle nodes, and the rest on the one with most free.
func (f freeGPUs) take(gpus int) ([]part, bool) {
	var parts []part
	for gpus > 8 {
		i := slices.Index(f, 8)
		if i < 0 {
			f.give(parts)
			return nil, false
		}
		f[i] = 0
		parts, gpus = append(parts, part{i, 8}), gpus-8
	}
	best := -1
	for i, n := range f {
		if n >= gpus && (best < 0 || len(parts) == 0 && n < f[best] || len(parts) > 0 && n > f[best]) {
			best = i
		}
	}
	if best < 0 {
		f.give(parts)
		return nil, false
	}
	f[best] -= gpus
	return append(parts, part{best, gpus}), true
}

func (f freeGPUs) give(parts []part) {
	for _, p := range parts {
		f[p.node] += p.gpus
	}
}

func (f freeGPUs) has(parts []part) bool {
	return !slices.ContainsFunc(parts, func(p part) bool { return f[p.node] < p.gpus })
}

func negative(parts []part) []part {
	out := slices.Clone(parts)
	for i := range out {
		out[i].gpus = -out[i].gpus
	}
	return out
}
