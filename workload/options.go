package workload

import (
	"time"

	"github.com/muster-sched/muster/core"
)

// Options describe how to read or generate a cluster or a workload. The zero value reads
// a whole file unchanged.
type Options struct {
	// Format is the name of the file's format (see [Formats]); if empty, the header row
	// determines it.
	Format string

	// From and To keep only the jobs submitted in [From, To) after the trace's zero; To 0
	// means no end. FromWall and ToWall are the same in wall-clock time, which only
	// philly has: its local time, read as UTC. A job must satisfy all given bounds.
	From, To         core.Time
	FromWall, ToWall time.Time
	// MinDuration and MaxDuration keep only the jobs whose run time is within these
	// bounds; MaxDuration 0 means no limit.
	MinDuration, MaxDuration core.Time
	// Sample is which sample of a workload of Sia's authors is read, from 1 on; 0 means the first.
	Sample int
	// Rebase makes the first selected job the zero of time. Otherwise jobs keep their
	// distance from the trace's zero.
	Rebase bool

	// Cluster, if not nil, is where the jobs will run: a selected job that could never
	// run there (see [Capacity.Check]) is an error. With Misfits, a pod that no node
	// could hold is not an error; the engine will reject the job. Jobs of a trace whose
	// queue the cluster does not have go to [DefaultQueue].
	Cluster *Cluster
	Misfits bool

	// Quotas gives the queues of a trace's cluster the quotas in the trace; otherwise
	// they have no limits.
	Quotas bool
	// LeafSize (nodes per leaf group, default 32) and SpineSize (leaf groups per spine,
	// default 16) determine the topology of clusters that have none.
	LeafSize, SpineSize int

	// Seed, Load, CPULoad, Length and GPUs are the parameters of generators: Load is the
	// requested GPU-time over the available GPU-time, CPULoad the core-time requested by jobs
	// without GPUs over that available (asi-cpu), Length the time in which jobs arrive, and
	// GPUs the size of the cluster. Zero means the generator's default.
	Seed    uint64
	Load    float64
	CPULoad float64
	Length  core.Time
	GPUs    int
	// CoresCap is the most cores that pods of asi request with each GPU, relative to the node's
	// cores for each of its GPUs; 0 means 1, with which cores never run out before GPUs.
	CoresCap float64
}

// DefaultQueue is the queue of jobs whose trace names none.
const DefaultQueue = "default"

// Priorities of jobs from traces and generators.
const (
	lowPriority    int32 = 0
	normalPriority int32 = 50
	highPriority   int32 = 100
)

// queue returns name, or DefaultQueue when name is empty or unknown to the
// cluster.
func (o *Options) queue(name []byte) string {
	if len(name) == 0 {
		return DefaultQueue
	}
	if o.Cluster == nil || len(o.Cluster.Queues) == 0 {
		return string(name)
	}
	for i := range o.Cluster.Queues {
		if o.Cluster.Queues[i].Name == string(name) {
			return o.Cluster.Queues[i].Name
		}
	}
	return DefaultQueue
}
