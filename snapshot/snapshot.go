// Package snapshot reads the description of a cluster at one moment, its nodes,
// queues and jobs, and asks the engine what it would do there.
package snapshot

import (
	"fmt"
	"slices"

	"github.com/muster-sched/muster/api/strict"
	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// Snapshot describes a cluster at one moment.
type Snapshot struct {
	Policy core.Policy
	// Levels are the node labels that name the topology domains, widest first.
	Levels []string
	Nodes  []core.Node
	// Queues lists parents first.
	Queues []core.Queue
	Jobs   []Job
	// Leaving are pods that are being deleted, each as a job that the engine does not decide about.
	Leaving []Job
	// Counted is what queues and jobs have received and deserved so far.
	Counted core.GPUTimeCounted
	// Now is the moment, counted so that no time of the snapshot is negative.
	Now core.Time
}

// Job is a job of a snapshot.
type Job struct {
	core.Job
	// Running lists the pods that run.
	Running []core.PodRunning
	// Saved is when the job saved its progress last, 0 if the file says how long it has run.
	Saved core.Time
	// StaleSince is since when the job has had fewer running pods than its minimum, if it is a gang and has.
	StaleSince core.Time
	names      map[int]string
}

// JobNames returns the names of the jobs.
func (s *Snapshot) JobNames() []string {
	var names []string
	for i := range s.Jobs {
		names = append(names, s.Jobs[i].Name)
	}
	return names
}

// Pod returns the name of the job's n-th pod: as the snapshot has it, or the
// job's name and the number.
func (j *Job) Pod(n int) string {
	if name, ok := j.names[n]; ok {
		return name
	}
	return fmt.Sprintf("%s-%d", j.Name, n)
}

// Parse reads a snapshot, in YAML or JSON. Errors are of type
// [*workload.Error].
func Parse(name string, data []byte, builtins v1alpha1.Builtins) (Snapshot, error) {
	var f file
	src, err := strict.Decode(name, data, &f)
	if err != nil {
		return Snapshot{}, err
	}
	r := reader{src: src, s: Snapshot{Levels: f.Topology.Levels}}
	for _, step := range []func(*file) error{
		func(f *file) error { return r.policy(&f.Policy, builtins) },
		r.levels, r.nodes, r.queues, r.jobs,
	} {
		if err := step(&f); err != nil {
			return Snapshot{}, err
		}
	}
	return r.s, nil
}

// served adds what a queue or a job has received and deserved to a list, if the file says so.
func served[T any](r *reader, path string, list *[]T, entry T, times ...core.Served) error {
	given := false
	for _, t := range times {
		given = given || t != core.Served{}
		if err := t.Check(); err != nil {
			return r.src.Errorf(path, "whole numbers below 2^120; found %q and %q", t.Received, t.Deserved)
		}
	}
	if given {
		*list = append(*list, entry)
	}
	return nil
}

// reader builds a snapshot from a file. Its maps find what was read by name.
type reader struct {
	src   *strict.Source
	s     Snapshot
	node  map[string]*place
	model map[string]bool
	queue map[string]bool
	job   map[string]bool
	pod   map[string]bool
}

// place is a node with what is left of it.
type place struct {
	*core.Node
	gpus             []core.Milli
	cpuMilli, memMiB int64
	taken            map[string]int64 // of other resources
}

func (r *reader) policy(p *policy, builtins v1alpha1.Builtins) (err error) {
	if p.name == "" {
		r.s.Policy, err = p.Policy("snapshot", builtins, r.src.Below("policy"))
		return err
	}
	known, ok := builtins(p.name)
	if !ok {
		return r.src.Errorf("policy", "the name of a built-in policy, or the policy itself; found %q", p.name)
	}
	r.s.Policy = known
	return nil
}

func (r *reader) levels(f *file) error {
	for i, level := range f.Topology.Levels {
		at := fmt.Sprintf("topology.levels[%d]", i)
		if level == "" || level == cluster.NodeLevel || level == cluster.HBDLevel {
			return r.src.Errorf(at, "a node label; found %q", level)
		}
		if slices.Contains(f.Topology.Levels[:i], level) {
			return r.src.Errorf(at, "each level once; found %q again", level)
		}
	}
	return nil
}

// level checks that the topology has a level of that name.
func (r *reader) level(path, name string) error {
	known := append(slices.Clone(r.s.Levels), cluster.NodeLevel, cluster.HBDLevel)
	if slices.Contains(known, name) {
		return nil
	}
	return r.src.Errorf(path, "one of the levels %s; found %q", list(known), name)
}

// unique checks that name is new to seen, and adds it.
func (r *reader) unique(seen map[string]bool, path, name string) error {
	if name == "" {
		return r.src.Errorf(path, `a name; found ""`)
	}
	if seen[name] {
		return r.src.Errorf(path, "a name of its own; found %q again", name)
	}
	seen[name] = true
	return nil
}
