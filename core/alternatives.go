package core

import (
	"errors"
	"fmt"
	"slices"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/goodput"
)

// A job with [Job].Alternatives runs as one of its tasks at a time: each of them is a way to run all of it, on so many GPUs of a
// model. Under a policy with a [Goodput].Round, a choice is made at the end of each round for all such jobs together (Sia, SOSP
// 2023; core/goodput); under other policies each runs as its first task.
//
//   - The pods of the chosen task wait and run as those of any gang. Those of the others are withdrawn. So classes, places and
//     quotas know nothing about alternatives.
//   - A job that is to run as another task is evicted whole ([Resized]), and waits as that when its pods have left. One that
//     is not chosen waits for a later round ([NotChosen]).
//   - Jobs without alternatives come first: what they hold, and what those that wait request, is not given to the others. They never leave.
//   - The choice counts GPUs by model. Where what is free is in pieces, a job waits for it, or others make room for it
//     as [Room] says.
//
// See docs/adr/0055.

// Goodput is how jobs with alternatives are given GPUs. The zero value: each runs as its first task.
type Goodput struct {
	// Round is the time between two choices: they are made at its multiples. 0: none is.
	Round Time
	// Restart is how long a restart is expected to take, of jobs of which no driver says it.
	Restart Time
	// Profile is for how long a job runs on one GPU of each model before it works, unless Similar is set and another
	// job that is similar has ended. The engine does not use them: drivers do, and report what they learned ([JobMeasured]).
	Profile Time
	Similar bool
}

// Check says what is expected of a policy that chooses by goodput, and is not so; nil if nothing is wrong.
func (g *Goodput) Check(of *Policy) error {
	switch {
	case g.Round == 0:
		return nil
	case g.Round < Second || min(g.Restart, g.Profile) < 0:
		return errors.New("a round of at least 1s, and no time below 0")
	case of.Preempt.evicts() || of.Preempt.Backfill || of.Fairness.Lease > 0 || of.Packing.On:
		return errors.New("no preemption, lease or packing beside it, as those count on jobs that keep their size; found some")
	}
	return nil
}

// alternatives are the jobs that have some, in the order in which they came.
//
// Invariant: of a job of these, pods of one task alone neither are withdrawn nor have ended.
type alternatives struct {
	*Engine
	jobs []*alternative
	// next is when the next choice is made; Never while that is not known: there is no job, or vain is set.
	next Time
	// vain says that no job was on a node after the last choice, and that nothing happened since: the next one would be the same.
	vain bool
}

// alternative is a job that has some.
type alternative struct {
	*job
	task   int // as which it waits, runs, or leaves
	chosen int // as which it is to run from now on, or [goodput.None]
	// goodputs are by task, nil if no driver reported any: then they are the speeds of the tasks on their models.
	goodputs       []int64
	restart, until Time // see JobMeasured
	starts         int
}

// checkAlternatives reports what is wrong with the tasks of a job that runs as one of them.
func checkAlternatives(j *Job) error {
	if !j.Alternatives {
		return nil
	}
	if !j.Gang || j.Mobility != Stays || len(j.Combinations) > 0 {
		return fmt.Errorf("job %s: alternatives of a job that is no gang, may be moved or combines models", j.Name)
	}
	for i := range j.Tasks {
		if t := &j.Tasks[i]; len(t.Models) != 1 || t.GPU < WholeGPU || t.MinPods != 0 || len(t.Affinity) > 0 {
			return fmt.Errorf("job %s: task %d is an alternative, expected whole GPUs of one model, all pods, and no affinity", j.Name, i)
		}
	}
	return nil
}

// submitted handles a new job, before it waits.
func (as *alternatives) submitted(j *job) {
	if !j.Alternatives {
		return
	}
	a := &alternative{job: j, restart: as.policy.Goodput.Restart, chosen: 0}
	as.jobs = append(as.jobs, a)
	j.Tasks = slices.Clone(j.Tasks) // the driver may still use them
	as.become(a, 0)
	if as.policy.Goodput.Round > 0 {
		a.chosen, j.unchosen = goodput.None, true
	}
}

// of finds the alternatives of a job.
func (as *alternatives) of(j *job) *alternative {
	return as.jobs[slices.IndexFunc(as.jobs, func(a *alternative) bool { return a.job == j })]
}

// ended forgets a job.
func (as *alternatives) ended(j *job) {
	if j.Alternatives {
		as.jobs = slices.DeleteFunc(as.jobs, func(a *alternative) bool { return a.job == j })
	}
}

// become has a job wait as a task from now on. No pod of it may be on a node, or have a place that is kept; and it is not among the waiting.
func (as *alternatives) become(a *alternative, task int) {
	a.task = task
	for i := range a.pods {
		p := &a.pods[i]
		to, by := podWithdrawn, -1
		if int(p.task) == task {
			to, by = podWaiting, 1
		}
		if p.state != to {
			as.set(a.job, p, to)
			as.requested(a.job, int(p.task), by)
		}
	}
	for t := range a.Tasks {
		if a.Tasks[t].MinPods = Elastic; t == task {
			a.Tasks[t].MinPods = 0
		}
	}
}

// settle has a job wait as the task that was chosen, if its pods have left.
func (as *alternatives) settle(j *job) {
	if !j.Alternatives || j.count[podRunning]+j.count[podLeaving] > 0 || j.nomination != nil || j.count[podDone] > 0 {
		return
	}
	if a := as.of(j); a.chosen != goodput.None && a.chosen != a.task {
		as.waiting.dequeue(j)
		as.become(a, a.chosen)
	}
}

// started counts the start of a job. It may have been found running.
func (as *alternatives) started(j *job) {
	if j.Alternatives {
		a := as.of(j)
		a.chosen, j.unchosen = a.task, false
		a.starts++
		as.vain = false
	}
}

// runsAs reports whether a job that has no pod on a node may be found running as another task than the one as which it waits.
func (j *job) runsAs() bool {
	return j.Alternatives && j.count[podRunning]+j.count[podLeaving]+j.count[podDone] == 0 && j.nomination == nil
}

// found has a job be the task of a pod of it that is found running. It is not among the waiting.
func (as *alternatives) found(j *job, p *pod) {
	if p.state == podWithdrawn {
		as.become(as.of(j), int(p.task))
	}
}

// measured handles what a driver knows of the speed of a job.
func (as *alternatives) measured(ev JobMeasured) error {
	j, err := as.job(ev.Job)
	switch {
	case err != nil:
		return err
	case !j.Alternatives:
		return fmt.Errorf("job %s has no alternatives", ev.Job)
	case len(ev.Goodputs) != len(j.Tasks):
		return fmt.Errorf("job %s: %d goodputs, expected one for each of its %d tasks", ev.Job, len(ev.Goodputs), len(j.Tasks))
	case slices.Min(ev.Goodputs) < 0:
		return fmt.Errorf("job %s: a goodput of %d, expected at least 0", ev.Job, slices.Min(ev.Goodputs))
	}
	if err := checkDuration(ev.Job, "restart", ev.Restart); err != nil {
		return err
	}
	a := as.of(j)
	a.goodputs, a.restart, a.until = slices.Clone(ev.Goodputs), ev.Restart, ev.Until
	return nil
}

// run makes a choice if a round has ended.
func (as *alternatives) run(now Time) {
	if as.policy.Goodput.Round == 0 || len(as.jobs) == 0 || as.vain {
		return
	}
	if as.next == Never {
		as.next = as.roundEnd(now)
	}
	if now >= as.next {
		as.choose(now)
		as.next = as.roundEnd(now + 1)
	}
}

// roundEnd returns the end of the round at a time: that time, if it is one.
func (as *alternatives) roundEnd(now Time) Time {
	round := as.policy.Goodput.Round
	return floorDiv(now+round-1, round) * round
}

// wake asks for the next choice at the end of a pass, if it may be another one.
func (as *alternatives) wake(now Time) {
	switch {
	case as.policy.Goodput.Round == 0:
		return
	case len(as.jobs) == 0 || as.vain:
		as.next = Never
		return
	case as.next == Never:
		as.next = as.roundEnd(now + 1)
	}
	as.wakes.at(now, as.next)
}

// choose decides as what each job runs until the end of the next round. O(jobs · pods), and the time of [goodput.Choose].
func (as *alternatives) choose(now Time) {
	// 1. What there is to give, and to whom.
	supply := as.supply()
	models, free := supply.models, supply.free
	var choosing []*alternative
	var tables [][]goodput.Config
	var tasks [][]int // of the configurations
	for _, a := range as.jobs {
		if a.held && a.count[podRunning]+a.count[podLeaving] == 0 {
			as.wait(a, goodput.None, now) // it is chosen when it is released
			continue
		}
		if a.keeps(now) {
			if a.chosen != goodput.None {
				if m := slices.Index(models, a.Tasks[a.chosen].Models[0]); m >= 0 {
					free[m] = max(0, free[m]-a.gpus(a.chosen))
				}
			}
			continue
		}
		configs, of := a.configs(&supply, now)
		choosing, tables, tasks = append(choosing, a), append(tables, configs), append(tasks, of)
	}

	// 2. Who is to run as what. Those that leave come first, so that the others find what they leave as soon as they have.
	choice := goodput.Choose(free, tables)
	for i, a := range choosing {
		task := goodput.None
		if choice[i] != goodput.None {
			task = tasks[i][choice[i]]
		}
		if a.count[podRunning] > 0 && task != a.task {
			as.resize(a, task)
		} else if a.count[podRunning] == 0 {
			as.wait(a, task, now)
		}
	}
	as.vain = !slices.ContainsFunc(as.jobs, func(a *alternative) bool { return a.count[podRunning]+a.count[podLeaving] > 0 })
}

// keeps reports whether the choice leaves a job as it is: it has just started, has not left yet, or restarts elsewhere.
func (a *alternative) keeps(now Time) bool {
	return a.count[podLeaving] > 0 || a.nomination != nil || a.count[podDone] > 0 || a.count[podRunning] > 0 && (a.held || now < a.until)
}

// gpus is how many GPUs the job has as a task.
func (a *alternative) gpus(task int) int {
	return a.Tasks[task].Pods * int(a.Tasks[task].GPU/WholeGPU)
}

// configs are the ways to run a job on the models that there are, what they are worth, and its tasks that they are; the one that it has comes first,
// and the others in the order of its tasks.
func (a *alternative) configs(s *supply, now Time) (out []goodput.Config, tasks []int) {
	var goodputs []float64
	least, stays := 0.0, false // stays: it can have what it has
	for t := range a.Tasks {
		g := a.Tasks[t].SpeedOn(a.Tasks[t].Models[0])
		if a.goodputs != nil {
			g = a.goodputs[t]
		}
		m := slices.Index(s.models, a.Tasks[t].Models[0])
		if g <= 0 || m < 0 || !s.holds(m, &a.Tasks[t]) || !a.mayHold(t) {
			continue
		}
		if v := float64(g); least == 0 || v < least {
			least = v
		}
		at := len(out)
		if t == a.task && a.count[podRunning] > 0 {
			at, stays = 0, true
		}
		out = slices.Insert(out, at, goodput.Config{Model: m, GPUs: a.gpus(t)})
		tasks = slices.Insert(tasks, at, t)
		goodputs = slices.Insert(goodputs, at, float64(g))
	}
	factor := goodput.RestartFactor((now - a.Submitted).Seconds(), max(0, a.starts-1), a.restart.Seconds())
	for i := range out {
		v := goodputs[i] / least
		if stays && tasks[i] != a.task {
			v *= factor
		}
		out[i].Value = goodput.SiaObjective.Value(v)
	}
	return out, tasks
}

// mayHold reports whether the queue could ever hold the job as a task, and the bounds let it run so, if nothing else ran.
func (a *alternative) mayHold(task int) bool {
	t, gpus := &a.Tasks[task], Milli(a.gpus(task))*WholeGPU
	if gpus > min(a.most(t.Models[0]), a.queue.MostRunning()) {
		return false
	}
	return !slices.ContainsFunc(a.queue.Limits(), func(r string) bool { return cluster.Times(t.Pods, t.Takes(r)) > a.most(r) })
}

// supply is the GPU models, sorted, how many GPUs of each there are for jobs with alternatives, and the nodes that take pods.
type supply struct {
	models []string
	free   []int
	nodes  [][]*cluster.Node
}

// holds reports whether nodes of a model would hold the pods of a task if they were empty, by their GPUs, cores and memory.
func (s *supply) holds(model int, t *Task) bool {
	room := 0
	for _, n := range s.nodes[model] {
		pods := n.HealthyGPUs() / int(t.GPU/WholeGPU)
		if t.CPUMilli > 0 {
			pods = min(pods, int(n.Spec.CPUMilli/t.CPUMilli))
		}
		if t.MemMiB > 0 {
			pods = min(pods, int(n.Spec.MemMiB/t.MemMiB))
		}
		if room += pods; room >= t.Pods {
			return true
		}
	}
	return false
}

// supply adds up what there is.
func (as *alternatives) supply() (s supply) {
	there := schedulable(as.state, nil)
	for m := range there {
		s.models = append(s.models, m)
	}
	slices.Sort(s.models)
	s.nodes = make([][]*cluster.Node, len(s.models))
	for _, m := range s.models {
		s.free = append(s.free, int(there[m]/WholeGPU))
	}
	for _, p := range as.state.Pools() {
		for _, id := range p.Members() {
			if m := slices.Index(s.models, p.Model); id >= 0 && m >= 0 && !p.Lent && as.state.Node(id).Open() {
				s.nodes[m] = append(s.nodes[m], as.state.Node(id))
			}
		}
	}
	as.spare(&s)
	return s
}

// spare takes off what jobs without alternatives hold, and what those that wait request, in their order: of the first of their models that has it.
func (as *alternatives) spare(s *supply) {
	models, free := s.models, s.free
	var wait []*job
	for _, j := range as.Engine.jobs.slots {
		if j == nil || j.Alternatives {
			continue
		}
		for i := range j.pods {
			if p := &j.pods[i]; p.placed() || p.state == podLeaving {
				if m := slices.Index(models, as.state.Pool(p.alloc.Node).Model); m >= 0 {
					free[m] = max(0, free[m]-wholeGPUs(j.gpu(p)))
				}
			}
		}
		if j.count[podWaiting] > 0 && !j.held {
			wait = append(wait, j)
		}
	}
	as.sortByOrder(wait)
	for _, j := range wait {
		for t, n := range j.waitingByTask() {
			task := &j.Tasks[t]
			need := n * wholeGPUs(task.GPU)
			for m := range models {
				if need <= free[m] && (len(task.Models) == 0 || slices.Contains(task.Models, models[m])) {
					free[m] -= need
					break
				}
			}
		}
	}
}

// wholeGPUs is on how many devices a pod with so much GPU is.
func wholeGPUs(gpu Milli) int { return int((gpu + WholeGPU - 1) / WholeGPU) }

// wait has a job that does not run wait as a task from now on, or for a later round.
func (as *alternatives) wait(a *alternative, task int, now Time) {
	if task == a.chosen && (task == goodput.None || task == a.task) {
		return
	}
	as.waiting.dequeue(a.job)
	if a.chosen, a.unchosen = task, task == goodput.None; !a.unchosen && task != a.task {
		as.become(a, task)
	}
	as.changes.placesChanged(a.job)
	as.waiting.enqueue(a.job, now)
}

// resize evicts a job that is to run as another task, or as none.
func (as *alternatives) resize(a *alternative, task int) {
	j := a.job
	from := len(as.places)
	for i := range j.pods {
		p := &j.pods[i]
		if p.state != podRunning {
			continue
		}
		as.places = append(as.places, as.placement(j, i))
		j.charge(as.state, p, -1)
		j.leaves(as.state, p, 1)
		as.set(j, p, podLeaving)
		as.stopped(j, p)
	}
	as.changes.quotaReturned()
	as.nominations.goes(j)
	as.waiting.dequeue(j)
	j.begun = false
	a.chosen, j.unchosen = task, task == goodput.None
	to := "none"
	if task != goodput.None {
		to = a.text(task)
	}
	as.out = append(as.out, Decision{
		Op: Evict, Job: j.Name, Pods: as.places[from:len(as.places):len(as.places)], Reason: Resized, Detail: a.text(a.task) + " to " + to,
	})
}

// text says what the job has as a task.
func (a *alternative) text(task int) string {
	return fmt.Sprintf("%d %s", a.gpus(task), a.Tasks[task].Models[0])
}

// notChosen says why a job waits that was not chosen.
func (as *alternatives) notChosen(j *job) (Reason, string) {
	s := as.supply()
	if configs, _ := as.of(j).configs(&s, as.now); len(configs) == 0 {
		return NoNode, "no nodes would hold all pods of one of its alternatives, even if they were empty, or its queue can never hold as much"
	}
	next := "when something changes"
	if !as.vain {
		next = "in " + secondsText(as.roundEnd(as.now+1)-as.now)
	}
	return NotChosen, "on the GPUs that there are, the goodput of others counts more; the next choice is " + next
}
