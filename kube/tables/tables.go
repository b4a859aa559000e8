// Package tables has what the scheduler knows about a cluster: its nodes, pods, groups of pods,
// queues and shards, as the API reports them, and the acts in flight. Each type keeps its own
// data consistent; the methods of [Tables] answer questions about all of them and change nothing.
//
//	tables.go                     all of it
//	nodes.go pods.go groups.go    a node, a pod, and the pods of one job
//	jobs.go priorities.go         attributes of a job: from its pods, its PodGroup, its owner
//	stages.go                     which parts of an owner's pods are jobs by themselves
//	admitted.go quarantine.go     what of that counts until it ends, and what keeps it out
//	ledger.go                     what engines counted that are no more
//	queues.go shards.go           which queue a job waits in, and which instance decides on it
//	found.go                      what counts for pods that their authors put on nodes
//	returning.go                  which new pods come back as those that restart elsewhere
//	leaving.go overcommit.go      which pods leave drained and lost nodes, and GPUs given twice
//	count.go census.go            what nodes and groups count as
//	reasons.go                    why jobs wait, as reported to the API
//
// The package reaches neither the engine nor the acts: an error in it can give a wrong answer,
// but cannot act.
package tables

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/internal/fit"
	"github.com/muster-sched/muster/kube/devices"
	"github.com/muster-sched/muster/kube/done"
	"github.com/muster-sched/muster/kube/lost"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/peers"
	"github.com/muster-sched/muster/kube/queues"
	"github.com/muster-sched/muster/kube/settings"
	"github.com/muster-sched/muster/kube/storage"
	"github.com/muster-sched/muster/kube/translate"
)

// Tables has what the API reports, what is in flight, and what this instance decides on. Its
// methods answer questions, and change nothing: they can reach neither the engine nor the
// acts.
type Tables struct {
	Now core.Time // never goes back

	Nodes      map[string]*Node
	Pods       map[types.UID]*Pod
	Groups     map[translate.Group]*Group
	Jobs       map[string]*Group // those that the engine knows, by the job's name
	Stages     Stages            // of owners whose pods start in stages
	PodGroups  map[types.NamespacedName]*objects.PodGroup
	Namespaces map[string]map[string]string // labels
	Queues     Queues
	Ledgers    Ledgers
	Shards     ShardTable
	Seen       int // jobs that were created
	buckets    [buckets]bucket
	most       struct{ pods, groups, jobs int }

	Policies   *settings.Policies
	Topologies *settings.Topologies
	Priorities settings.Classes

	Peers   *peers.Index
	Storage *storage.Index
	Devices *devices.Index
	Lost    *lost.Index // the nodes that are not ready
	Done    *done.Index // the pods that have succeeded

	Agents bool // there are agents of nodes, which have processes save themselves
}

// New returns tables of a cluster of which nothing is known: all of it is one shard, and ours.
func New(policy core.Policy, levels []translate.Level) Tables {
	return Tables{
		Nodes: map[string]*Node{}, Pods: map[types.UID]*Pod{}, Groups: map[translate.Group]*Group{}, Jobs: map[string]*Group{}, Stages: Stages{},
		PodGroups: map[types.NamespacedName]*objects.PodGroup{}, Namespaces: map[string]map[string]string{}, Priorities: settings.Classes{},
		Queues: Queues{Index: queues.New()}, Ledgers: newLedgers(), Policies: settings.NewPolicies(policy), Topologies: settings.NewTopologies(levels), Shards: oneShard(),
		Peers: peers.New(), Storage: storage.New(), Devices: devices.New(), Lost: lost.New(), Done: done.New(),
	}
}

// Fit gives the memory back that pods and groups had which are gone. It has to be called from time to time.
func (t *Tables) Fit() {
	t.Pods, t.Groups, t.Jobs = fit.Map(t.Pods, &t.most.pods), fit.Map(t.Groups, &t.most.groups), fit.Map(t.Jobs, &t.most.jobs)
	for i := range t.buckets {
		t.buckets[i].groups = fit.Map(t.buckets[i].groups, &t.buckets[i].most)
	}
	t.Peers.Fit()
}

// Clock is the current time, as wall clock.
func (t *Tables) Clock() time.Time { return time.Unix(0, int64(t.Now)) }

// Unseen returns those of the pods that have no node as far as the tables know.
func (t *Tables) Unseen(pods []metav1.PartialObjectMetadata) []metav1.PartialObjectMetadata {
	var out []metav1.PartialObjectMetadata
	for i := range pods {
		if p := t.Pods[pods[i].UID]; p == nil || p.Object.Node == "" {
			out = append(out, pods[i])
		}
	}
	return out
}
