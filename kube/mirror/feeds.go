package mirror

import (
	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/devices"
	"github.com/muster-sched/muster/kube/feed"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/peers"
	"github.com/muster-sched/muster/kube/settings"
	"github.com/muster-sched/muster/kube/storage"
	"github.com/muster-sched/muster/kube/translate"
)

// Mailbox holds what changes a mirror; Fact is one such change.
type (
	Mailbox = feed.Mailbox[*Mirror]
	Fact    = feed.Fact[*Mirror]
)

// NewMailbox returns an empty mailbox.
func NewMailbox() *Mailbox { return feed.NewMailbox[*Mirror]() }

// Feeds returns a feed for each resource, by its name. Each cuts objects down to what is kept
// of them, and puts what they change into the mailbox.
func Feeds(box *Mailbox) map[string]feed.Feed {
	pods := feed.Follow(box, objects.TrimPod, (*Mirror).podSeen, func(m *Mirror, o *objects.Pod) { m.podGone(o.UID) }, (*Mirror).podsListed)
	nodes := feed.Follow(box, objects.TrimNode, (*Mirror).nodeSeen, func(m *Mirror, o *objects.Node) { m.nodeGone(o.Name) }, (*Mirror).nodesListed)
	pods.Bare, nodes.Bare = feed.As(objects.BarePod), feed.As(objects.BareNode)
	type vols = *storage.Index
	type devs = *devices.Index
	return map[string]feed.Feed{
		"pods": pods, "nodes": nodes,
		"namespaces": feed.Follow(box, objects.TrimNamespace, (*Mirror).namespaceSeen,
			func(m *Mirror, o *objects.Namespace) { m.namespaceGone(o.Name) }, (*Mirror).namespacesListed),
		"podgroups": feed.Follow(box, objects.TrimPodGroup, (*Mirror).podGroupSeen,
			func(m *Mirror, o *objects.PodGroup) { m.podGroupGone(objects.KeyOf(o)) }, (*Mirror).podGroupsListed),
		"queues": feed.Follow(box, whole[*v1alpha1.Queue], (*Mirror).queueSeen,
			func(m *Mirror, q *v1alpha1.Queue) { m.queueGone(q.Name) }, (*Mirror).queuesListed),

		"schedulingpolicies": feed.Follow(box, whole[*v1alpha1.SchedulingPolicy],
			inPolicies((*settings.Policies).Observe), inPolicies((*settings.Policies).Forget), inPolicies((*settings.Policies).Replace)),
		"topologies": feed.Follow(box, whole[*v1alpha1.Topology],
			inTopologies((*settings.Topologies).Observe), inTopologies((*settings.Topologies).Forget), inTopologies((*settings.Topologies).Replace)),
		"ledgers": feed.Follow(box, whole[*v1alpha1.Ledger], func(m *Mirror, o *v1alpha1.Ledger) { m.Ledgers.Observe(o) },
			func(m *Mirror, o *v1alpha1.Ledger) { m.Ledgers.Forget(o.Name) }, func(m *Mirror, l []*v1alpha1.Ledger) { m.Ledgers.Replace(l) }),
		"priorityclasses": feed.Follow(box, settings.ClassOf,
			inClasses(settings.Classes.Observe), inClasses(settings.Classes.Forget), inClasses(settings.Classes.Replace)),
		"poddisruptionbudgets": feed.Follow(box, peers.BudgetOf,
			inBudgets((*peers.Index).ObserveBudget), inBudgets((*peers.Index).ForgetBudget), inBudgets((*peers.Index).ReplaceBudgets)),

		"persistentvolumeclaims": feed.Follow(box, storage.ClaimOf, inStorage(vols.ObserveClaim), inStorage(vols.ForgetClaim), inStorage(vols.ReplaceClaims)),
		"persistentvolumes":      feed.Follow(box, storage.VolumeOf, inStorage(vols.ObserveVolume), inStorage(vols.ForgetVolume), inStorage(vols.ReplaceVolumes)),
		"storageclasses":         feed.Follow(box, storage.ClassOf, inStorage(vols.ObserveClass), inStorage(vols.ForgetClass), inStorage(vols.ReplaceClasses)),
		"csinodes":               feed.Follow(box, storage.LimitsOf, inStorage(vols.ObserveLimits), inStorage(vols.ForgetLimits), inStorage(vols.ReplaceLimits)),

		"resourceslices":   feed.Follow(box, translate.SliceOf, inDevices(devs.ObserveSlice), inDevices(devs.ForgetSlice), inDevices(devs.ReplaceSlices)),
		"deviceclasses":    feed.Follow(box, devices.ClassOf, inDevices(devs.ObserveClass), inDevices(devs.ForgetClass), inDevices(devs.ReplaceClasses)),
		"resourceclaims":   feed.Follow(box, devices.ClaimOf, inDevices(devs.ObserveClaim), inDevices(devs.ForgetClaim), inDevices(devs.ReplaceClaims)),
		"devicetaintrules": feed.Follow(box, translate.TaintRuleOf, inDevices(devs.ObserveTaintRule), inDevices(devs.ForgetTaintRule), inDevices(devs.ReplaceTaintRules)),
	}
}

// whole keeps all of an object.
func whole[T any](o T) T { return o }
