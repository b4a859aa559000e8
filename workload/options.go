package workload

import (
	"time"

	"github.com/muster-sched/muster/core"
)

// Options say how to read or make up a cluster or a workload. The zero value
// reads a whole file as it is.
type Options struct {
	// Format is the name of the file's format (see [Formats]); empty to tell it
	// by the header row.
	Format string

	// From and To keep only the jobs submitted in [From, To) after the trace's
	// zero; To 0 is no end. FromWall and ToWall say the same in wall-clock time,
	// which only philly has: its local time, read as UTC. All that are given
	// must hold.
	From, To         core.Time
	FromWall, ToWall time.Time
	// MinDuration and MaxDuration keep only the jobs that run at least and at
	// most so long; MaxDuration 0 is no limit.
	MinDuration, MaxDuration core.Time
	// Rebase makes the first job that is kept the zero of time. Otherwise jobs
	// keep their distance from the trace's zero.
	Rebase bool

	// Cluster, when not nil, is where the jobs are to run: a job that could
	// never run there (see [Capacity.Check]) is an error, after the selection
	// above. With Misfits a pod that no node could hold is none: it is left to
	// the engine to reject. Traces whose tenants are not all known to it put the others in
	// [DefaultQueue].
	Cluster *Cluster
	Misfits bool

	// Quotas gives the queues of a trace's cluster the quotas the trace tells
	// of; otherwise they have no limits.
	Quotas bool
	// LeafSize (nodes a leaf group, default 32) and SpineSize (leaf groups a
	// spine, default 16) shape the topology of clusters that come without one.
	LeafSize, SpineSize int

	// Seed, Load, Length and GPUs are the parameters of generators: Load is
	// GPU-time asked over GPU-time there is, Length the time in which jobs
	// arrive, GPUs the size of the cluster. Zero chooses the generator's own.
	Seed   uint64
	Load   float64
	Length core.Time
	GPUs   int
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
