package core

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core/cluster"
)

// This file decides what becomes of a job that failed, and of the nodes that its failure points to (SchedMate §3.3). The driver says
// why it failed, [JobDiagnosed], with the row of its recovery table. The engine counts: restarts by job and class of failure, and
// strikes by node. It keeps a job that restarts off the nodes under suspicion.

// Recovery is what a policy does about failures that were diagnosed. The zero value does nothing: a job
// that failed starts again after its pause, wherever there is room.
type Recovery struct {
	Mode RecoveryMode
	// MinConfidence is that of a diagnosis, in thousandths, below which it counts as none.
	MinConfidence int64
	// MaxRestarts is how often a job restarts within a day at most, whatever failed; 0: as often as the most generous of the
	// remedies of these failures allows.
	MaxRestarts int
	// Window is for how long a strike counts, and a job avoids the nodes on which it failed.
	Window Time
	// Strikes is how many strikes within Window cordon a node; 0: no number does.
	Strikes int
	// MaxCordoned is the share of the nodes, in thousandths, that may be cordoned for failures at a time; one node always may be.
	MaxCordoned int64
	// Tests says that the driver tests nodes: for [TestNode], a node is cordoned until a test passed, which the decision [Test] asks for. Without tests,
	// that is a strike.
	Tests bool
}

// RecoveryMode says whether decisions about failures take effect.
type RecoveryMode uint8

const (
	// NoRecovery ignores diagnoses.
	NoRecovery RecoveryMode = iota
	// RecoveryDryRun decides as Recover does, but nothing follows from the decisions: their details begin with [DryRun]. Restarts and strikes are counted.
	RecoveryDryRun
	// Recover holds jobs, keeps them off nodes, and cordons nodes.
	Recover
)

// RecoveryModes names the modes, in their order.
var RecoveryModes = [...]string{"Off", "DryRun", "On"}

func (m RecoveryMode) String() string { return RecoveryModes[m] }

// DefaultRecovery is what a policy does about failures that does not say it in detail: two strikes within a day cordon a node, and at most a tenth of the nodes
// is cordoned so.
func DefaultRecovery() Recovery {
	return Recovery{Mode: NoRecovery, MinConfidence: 500, Window: aDay, Strikes: 2, MaxCordoned: 100}
}

// DryRun begins the details of decisions that have no effect.
const DryRun = "dry run: "

// Remedy is a row of a recovery table: what to do about a failure.
type Remedy struct {
	// Restarts is how often within a day a job restarts after failures of the class; then it is held. Failures of different
	// classes do not add up to more, see [Recovery].MaxRestarts. 0: it is held at once. [AsBefore]: the job is treated as if
	// it had no diagnosis.
	Restarts int
	// Node is what happens to the suspects.
	Node NodeRemedy
}

// AsBefore is the Restarts of a [Remedy] that leaves the job alone.
const AsBefore = -1

// NodeRemedy is what happens to a node to which a failure points.
type NodeRemedy uint8

const (
	// NoStrike: nothing.
	NoStrike NodeRemedy = iota
	// StrikeNode: it gets a strike.
	StrikeNode
	// TestNode: it takes no other pods until a test passed, or, without tests, gets a strike.
	TestNode
	// CordonNode: it takes no pods until an operator has repaired it.
	CordonNode
	numNodeRemedies
)

// NodeRemedies names what happens to nodes, in their order.
var NodeRemedies = [numNodeRemedies]string{"nothing", "strike", "test", "cordon"}

func (r NodeRemedy) String() string { return NodeRemedies[r] }

// aDay is the time in which restarts are counted.
const aDay = 24 * 3600 * Second

// recoveries is what is known of failures.
//
// Invariant: a node in cordoned is up and cordoned, unless the mode is RecoveryDryRun.
type recoveries struct {
	*Engine
	found    []JobDiagnosed // since the last pass
	tested   []NodeTested   // since the last pass
	untold   []string       // jobs that are held and came back, and are to be decided as held again
	jobs     map[string]*failures
	strikes  map[cluster.NodeID][]Strike
	cordoned map[cluster.NodeID]bool // for failures
	// until is when the first job no longer avoids a node; Never if none avoids any.
	until Time
	// stale says that some failures are stale, seen is changes.offered when the jobs were weighed last.
	stale bool
	seen  uint64
	swept int // how many jobs were left when those were forgotten that ended long ago
}

// failures are those of a job, by its name: it may end and come back within a day, as owners make new pods.
type failures struct {
	at       Time // when the last one was; [Never] before the first
	started  Time // when the job did last
	decided  bool // what becomes of it after the last one
	restarts []restartAfter
	held     string // why it is held; "" if it is not
	avoids   []avoided
	stale    bool // which of these are dropped is to be determined again
}

// restartAfter is a restart after a failure of a class, whose remedy allows that many.
type restartAfter struct {
	class   string
	allowed int
	at      Time
}

// diagnosed takes in why a job failed. The next pass decides.
func (r *recoveries) diagnosed(now Time, ev JobDiagnosed) error {
	switch {
	case ev.At > now:
		return fmt.Errorf("job %s: failed at %.9gs, which is later than now, %.9gs", ev.Job, ev.At.Seconds(), now.Seconds())
	case ev.Job == "" || ev.Class == "":
		return fmt.Errorf("a diagnosis without a job or a class")
	case ev.Confidence < 0 || ev.Confidence > 1000:
		return fmt.Errorf("job %s: confidence %d, expected 0..1000", ev.Job, ev.Confidence)
	case ev.Remedy.Restarts < AsBefore || ev.Remedy.Node >= numNodeRemedies:
		return fmt.Errorf("job %s: unknown remedy", ev.Job)
	}
	if r.policy.Recovery.Mode == NoRecovery {
		return nil
	}
	if ev.At == 0 {
		ev.At = now
	}
	ev.Suspects = slices.Clone(ev.Suspects)
	r.found = append(r.found, ev)
	return nil
}

// nodeTested takes in the outcome of a test. The next pass decides.
func (r *recoveries) nodeTested(ev NodeTested) error {
	if _, err := r.node(ev.Node); err != nil {
		return err
	}
	if r.policy.Recovery.Mode != NoRecovery {
		r.tested = append(r.tested, ev)
	}
	return nil
}

// released ends the hold of a job, live or not, and forgets its failures.
func (r *recoveries) released(now Time, ev JobReleased) {
	j := r.Engine.jobs.byName[ev.Job]
	if j != nil {
		r.waiting.dequeue(j)
		j.held = false
	}
	delete(r.jobs, ev.Job)
	r.found = slices.DeleteFunc(r.found, func(d JobDiagnosed) bool { return d.Job == ev.Job })
	if j != nil {
		r.waiting.enqueue(j, now)
	}
}

// submitted handles a new job, which may be an earlier one that comes back.
func (r *recoveries) submitted(j *job) {
	r.reshaped(j)
	if f := r.jobs[j.Name]; f != nil && f.held != "" {
		j.held = true
		r.untold = append(r.untold, j.Name)
	}
}

// started handles a job of which pods start.
func (r *recoveries) started(j *job, at Time) {
	if len(r.jobs) > 0 && r.jobs[j.Name] != nil {
		r.jobs[j.Name].started = at
	}
}

// run decides what follows from the diagnoses and tests since the last pass, in their order.
func (r *recoveries) run(now Time) {
	if r.policy.Recovery.Mode == NoRecovery {
		return
	}
	for i := range r.tested {
		r.afterTest(now, &r.tested[i])
	}
	r.tested = r.tested[:0]
	for i := range r.found {
		r.decide(now, &r.found[i])
	}
	r.found = r.found[:0]
	for _, name := range r.untold {
		if j := r.Engine.jobs.byName[name]; j != nil && j.held {
			r.say(Hold, name, "", Held, r.jobs[name].held)
		}
	}
	r.untold = r.untold[:0]
	r.expire(now)
}

// say adds a decision.
func (r *recoveries) say(op Op, job, node string, why Reason, detail string) {
	if r.policy.Recovery.Mode == RecoveryDryRun {
		detail = DryRun + detail
	}
	r.out = append(r.out, Decision{Op: op, Job: job, Node: node, Reason: why, Detail: detail})
}

// decide decides what follows from a diagnosis.
func (r *recoveries) decide(now Time, ev *JobDiagnosed) {
	p := &r.policy.Recovery
	if ev.Confidence < p.MinConfidence {
		return
	}
	f := r.jobs[ev.Job]
	if f == nil {
		r.forget(now)
		f = r.firstOf(ev.Job)
	}
	if f.at == Never || f.at <= f.started && f.started < ev.At { // it has started since the one before
		f.at, f.decided = ev.At, false
	}
	var suspects []cluster.NodeID
	for _, name := range ev.Suspects {
		if id, ok := r.state.Lookup(name); ok && !slices.Contains(suspects, id) {
			suspects = append(suspects, id)
		}
	}
	r.recover(now, ev, f, suspects)
	for _, id := range suspects {
		switch n := ev.Remedy.Node; {
		case n == CordonNode:
			r.cordonFor(now, id, fmt.Sprintf("%s in job %s", ev.Class, ev.Job))
		case n == TestNode && p.Tests:
			if r.cordonFor(now, id, fmt.Sprintf("%s in job %s; it takes no other pods until a test has passed", ev.Class, ev.Job)) {
				r.say(Test, "", r.state.Node(id).Spec.Name, Suspect, fmt.Sprintf("%s in job %s", ev.Class, ev.Job))
			}
		case n != NoStrike:
			r.strike(now, id, ev, f)
		}
	}
}

// firstOf returns what is to be known of the failures of a job.
func (r *recoveries) firstOf(job string) *failures {
	f := &failures{at: Never}
	r.jobs[job] = f
	if j := r.Engine.jobs.byName[job]; j != nil {
		for i := range j.pods {
			if s := j.pods[i].state; s == podRunning || s == podLeaving { // what is left of a gang leaves when one of its pods fails
				f.started = max(f.started, j.pods[i].started)
			}
		}
	}
	return f
}

// recover decides whether a job that failed restarts or is held. Of several diagnoses of one failure, as each process of a job has a
// log, the first decides; the others may add suspects.
func (r *recoveries) recover(now Time, ev *JobDiagnosed, f *failures, suspects []cluster.NodeID) {
	p := &r.policy.Recovery
	if ev.Remedy.Restarts == AsBefore || f.held != "" || f.decided && suspects == nil {
		return
	}
	// 1. May it?
	why, again := "", f.decided
	if !again {
		why = f.mayNot(now, ev, p.MaxRestarts)
	}
	f.decided = true
	j := r.Engine.jobs.byName[ev.Job]
	dry := p.Mode == RecoveryDryRun
	if why != "" {
		if j != nil {
			r.say(Hold, ev.Job, "", Held, why)
		}
		if !dry {
			f.held = why
			r.hold(now, j)
		}
		return
	}

	// 2. It restarts, elsewhere.
	which := "the same failure as before"
	if !again {
		f.restarts = append(f.restarts, restartAfter{ev.Class, ev.Remedy.Restarts, now})
		which = fmt.Sprintf("restart %d of %d within a day", f.restartsAfter(ev.Class), ev.Remedy.Restarts)
	}
	elsewhere := false
	if p.Window == 0 {
		suspects = nil
	}
	for _, id := range suspects {
		if !dry {
			elsewhere = r.avoid(f, id, cluster.Plus(now, p.Window)) || elsewhere
		}
	}
	if j != nil {
		if f.stale {
			closed, opened := r.weigh(j, f)
			elsewhere = elsewhere || closed || opened
		}
		r.say(Restart, ev.Job, "", Diagnosed, fmt.Sprintf("%s: %s%s", ev.Class, which, r.whereAgain(f, suspects)))
		if elsewhere { // else what is planned for it stands
			r.refile(now, j)
		}
	}
}

// mayNot says why the job must not restart after a failure; "" if it may. most is how often it may within a day, whatever failed; 0:
// as often as the most generous of the remedies of these failures allows. A job that fails for another reason each time has been helped by
// none of its restarts: counted by class alone, it would restart as often as all classes together allow.
func (f *failures) mayNot(now Time, ev *JobDiagnosed, most int) string {
	f.restarts = slices.DeleteFunc(f.restarts, func(x restartAfter) bool { return now-x.at >= aDay })
	allowed := ev.Remedy.Restarts
	if most == 0 {
		most = allowed
		for _, x := range f.restarts {
			most = max(most, x.allowed)
		}
	}
	switch n := f.restartsAfter(ev.Class); {
	case allowed == 0:
		return fmt.Sprintf("%s: it would fail again", ev.Class)
	case n >= allowed:
		return fmt.Sprintf("%s: it has restarted %d of %d times within a day", ev.Class, n, allowed)
	case len(f.restarts) >= most:
		return fmt.Sprintf("%s: it has restarted %d of %d times within a day, after all failures", ev.Class, len(f.restarts), most)
	}
	return ""
}

// restartsAfter counts the restarts after failures of a class.
func (f *failures) restartsAfter(class string) int {
	n := 0
	for _, x := range f.restarts {
		if x.class == class {
			n++
		}
	}
	return n
}

// hold keeps the pods of a job from starting; nil is no job.
func (r *recoveries) hold(now Time, j *job) {
	if j != nil {
		j.held = true
		r.refile(now, j)
	}
}

// refile files a job again that is held from now on, or may start elsewhere than before. Its plans were made before.
func (r *recoveries) refile(now Time, j *job) {
	r.waiting.dequeue(j)
	if j.nomination != nil {
		r.nominations.denominate(j)
	}
	r.waiting.enqueue(j, now)
}

// strike counts a failure against a node, each once. Enough of them cordon it.
func (r *recoveries) strike(now Time, id cluster.NodeID, ev *JobDiagnosed, f *failures) {
	p := &r.policy.Recovery
	all := slices.DeleteFunc(r.strikes[id], func(s Strike) bool { return now-s.At >= p.Window })
	if !slices.ContainsFunc(all, func(s Strike) bool { return s.Job == ev.Job && s.At == f.at }) {
		all = append(all, Strike{f.at, ev.Class, ev.Job})
	}
	r.strikes[id] = all
	if p.Strikes == 0 || len(all) < p.Strikes {
		return
	}
	var of []string
	for _, s := range all {
		of = append(of, fmt.Sprintf("%s in job %s", s.Class, s.Job))
	}
	r.cordonFor(now, id, fmt.Sprintf("strikes within %s: %d: %s", durationText(p.Window), len(all), strings.Join(of, ", ")))
}

// cordonFor cordons a node for failures, unless it is cordoned, or as many are as may be. It reports whether it did.
func (r *recoveries) cordonFor(now Time, id cluster.NodeID, why string) bool {
	n := r.state.Node(id)
	if !n.Up || n.Spec.Cordoned || r.cordoned[id] || len(r.cordoned) >= r.mostCordoned() {
		return false
	}
	r.cordoned[id] = true
	if r.policy.Recovery.Mode == Recover {
		r.setCordoned(now, id, true)
	}
	r.say(Cordon, "", n.Spec.Name, Suspect, why)
	return true
}

// mostCordoned returns how many nodes may be cordoned for failures at a time.
func (r *recoveries) mostCordoned() int {
	up := 0
	for id := range cluster.NodeID(r.state.Nodes()) {
		if r.state.Node(id).Up && !r.state.Lent(id) {
			up++
		}
	}
	return max(1, int(int64(up)*r.policy.Recovery.MaxCordoned/1000))
}

// afterTest lets a node take pods again that passed a test, and cordons one that did not.
func (r *recoveries) afterTest(now Time, ev *NodeTested) {
	id, err := r.node(ev.Node)
	switch {
	case err != nil: // it was lost since
	case !ev.Passed:
		r.cordonFor(now, id, "it did not pass a test")
	default:
		delete(r.strikes, id)
		r.trust(now, id)
		if !r.cordoned[id] {
			return
		}
		delete(r.cordoned, id)
		if r.policy.Recovery.Mode == Recover {
			r.setCordoned(now, id, false)
		}
		r.say(Uncordon, "", ev.Node, Passed, "it passed a test")
	}
}

// cleared forgets what is held against a node that was cordoned for failures and that an operator uncordoned. The end of another cordon
// says nothing about them: a node that is not ready for a moment is cordoned, too, and faulty ones are that often.
func (r *recoveries) cleared(now Time, id cluster.NodeID) {
	if !r.cordoned[id] {
		return
	}
	delete(r.cordoned, id)
	delete(r.strikes, id)
	r.trust(now, id)
}

// trust lets the jobs start on a node again that avoid it.
func (r *recoveries) trust(now Time, id cluster.NodeID) {
	r.drop(now, func(a avoided) bool { return a.node == id })
}

// expire ends what jobs have avoided for long enough, and asks for a call when more of it ends.
func (r *recoveries) expire(now Time) {
	if now >= r.until {
		r.drop(now, func(a avoided) bool { return a.until <= now })
		r.until = Never
		for _, f := range r.jobs {
			for _, a := range f.avoids {
				r.until = min(r.until, a.until)
			}
		}
	}
	r.wakes.at(now, r.until)
}

// drop lets jobs start again on nodes that they avoid.
func (r *recoveries) drop(now Time, ends func(avoided) bool) {
	var names []string
	for name, f := range r.jobs {
		if slices.ContainsFunc(f.avoids, ends) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		j := r.Engine.jobs.byName[name]
		if j != nil {
			r.waiting.dequeue(j)
		}
		r.jobs[name].avoids = slices.DeleteFunc(r.jobs[name].avoids, ends)
		r.jobs[name].stale, r.stale = true, true
		if j != nil {
			r.waiting.enqueue(j, now)
		}
	}
}

// forget drops what is known of jobs that are over, a day or the window after their last failure, each time that there are twice as many as were left.
func (r *recoveries) forget(now Time) {
	if len(r.jobs) < 2*r.swept {
		return
	}
	for name, f := range r.jobs {
		if r.Engine.jobs.byName[name] == nil && now-f.at >= max(aDay, r.policy.Recovery.Window) {
			delete(r.jobs, name)
		}
	}
	r.swept = max(len(r.jobs), 32)
}

// remainder writes a time that is left, rounded up to minutes, or to seconds below ten minutes.
func remainder(t Time) string {
	unit := Second
	if t >= 600*Second {
		unit *= 60
	}
	return durationText((max(0, t) + unit - 1) / unit * unit)
}
