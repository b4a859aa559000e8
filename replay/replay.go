// Package replay reads the event log of a cluster as a workload: which nodes and queues
// it had at which times, when jobs arrived, and how long they ran. So the simulator can
// run them under another policy.
package replay

import (
	"errors"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/eventlog"
	"github.com/muster-sched/muster/workload"
)

// Recording is the history of a cluster. Times count from its beginning.
type Recording struct {
	// Cluster has all nodes and queues that ever existed. An Isolated queue has the
	// largest quota that it ever had.
	Cluster workload.Cluster
	// Changes are the additions, changes and removals of nodes and queues. The last one
	// is the end of the recording.
	Changes []workload.Change
	// List has the jobs in the order of their arrival.
	List []workload.Job
	// Counts is set if queues or jobs had received GPU time, or deserved it, before the recording began: Changes and List have that.
	Counts bool
	// Policy is the policy of the recorded engine.
	Policy core.Policy
	// End is the length of the recording.
	End core.Time
}

// Jobs yields the jobs.
func (r *Recording) Jobs() workload.Jobs {
	return func(yield func(workload.Job, error) bool) {
		for i := range r.List {
			if !yield(r.List[i], nil) {
				return
			}
		}
	}
}

// Read reads the event log at path, a file or a folder. Errors are of type
// [*workload.Error].
func Read(path string) (*Recording, error) {
	f := newFold()
	for e, err := range eventlog.Read(path) {
		if err != nil {
			return nil, err
		}
		if err := f.take(&e); err != nil {
			return nil, &workload.Error{File: e.File, Line: e.Line, Want: "what goes with the lines before: " + err.Error()}
		}
	}
	r := f.finish()
	if len(r.Cluster.Nodes) == 0 {
		return nil, &workload.Error{File: path, Want: "a log with nodes in it, found none"}
	}
	return r, nil
}

// fold reads entries, one after the other.
type fold struct {
	recording Recording
	tables    *eventlog.Tables
	entry     *eventlog.Entry // the one that is taken in
	zero, now core.Time       // now counts from zero
	seen      core.Time       // the time of the entry before
	begun     bool
	machines  machines
	layers    layers

	jobs   map[string]*job // live
	parked map[string]*job // that the log took back, and may go on with
	all    []*job
	names  map[string]int // how many jobs had a name
	// taken are the jobs that the log withdrew since the last pass, and where their lives
	// were then: it may submit them again unchanged, in other roles.
	taken map[string]map[place][]*life
	// unsettled are jobs with pods that may still turn out to continue other pods.
	unsettled []*job

	// starting is set while an engine receives its initial state, restored while this
	// state comes from a snapshot; before is the state before.
	starting, restored bool
	before             standing
	// first is set until the first engine has received its initial state; served is what queues had received by then.
	first  bool
	served []core.GPUTimeCounted
}

// standing is the state before an engine began.
type standing struct {
	at     core.Time
	jobs   map[string]*job
	nodes  map[string]core.Node
	queues map[string]core.Queue
	names  map[string]string // of nodes, by the log's
}

func newFold() *fold {
	f := &fold{
		tables: eventlog.NewTables(), jobs: map[string]*job{}, parked: map[string]*job{}, names: map[string]int{},
		taken: map[string]map[place][]*life{}, machines: machines{now: map[string]string{}, at: map[string]int{}},
	}
	f.tables.Moved = f.moved
	return f
}

var errFirst = errors.New("a header comes first")

func (f *fold) take(e *eventlog.Entry) error {
	f.entry = e
	switch {
	case !f.begun && e.Begin == nil:
		return errFirst
	case !f.begun:
		f.begun, f.first, f.zero = true, true, e.Now
		f.layers = newLayers(e.Begin.Levels)
		f.recording.Policy = e.Begin.Policy
		f.recording.Cluster.Levels = f.layers.names
	}
	if f.starting && e.Begin == nil && !e.Restored && (f.restored || e.Pass) {
		f.started() // before time goes on
	}
	f.seen, f.now = f.now, max(f.now, e.Now-f.zero)
	return f.takeIn(e)
}

func (f *fold) takeIn(e *eventlog.Entry) error {
	switch {
	case e.Begin != nil:
		f.start()
	case e.Pass:
		f.settle()
		clear(f.taken)
	}
	gone := ""
	switch ev := e.Event.(type) {
	case core.JobEnded:
		gone = ev.Job
		f.settle()
		f.whereabouts(ev.Job)
	case core.PodsAdded:
		f.settle()
	}
	if err := f.tables.Take(e); err != nil {
		return err
	}
	switch ev := e.Event.(type) {
	case core.NodeAdded:
		f.machines.added(&ev.Node, &f.recording.Cluster, f.layers, !f.starting)
	case core.JobSubmitted:
		f.submitted(f.tables.Jobs[ev.Job.Name])
	case core.PodsAdded:
		f.added(&ev)
	case core.JobRelabelled:
		f.roles(f.jobs[ev.Job], f.tables.Jobs[ev.Job])
	case core.JobEstimated:
		if j := f.jobs[ev.Job]; j != nil && ev.Estimate > 0 {
			j.spec.Estimate = ev.Estimate
		}
	case core.GPUTimeCounted:
		if f.first {
			f.counted(&ev)
		}
	}
	if gone != "" {
		f.park(f.jobs[gone])
	}
	if !f.starting && e.Event != nil {
		f.change(e.Event)
	}
	return nil
}
