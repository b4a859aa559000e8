// Package audit checks a cluster from what its API says, and from nothing else: it shares
// no code with the scheduler, not even the names of its annotations, so that an error of
// the scheduler's is none of the audit's.
package audit

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// What the scheduler writes on pods and owners, and what users write for it.
const (
	schedulerName = "muster"
	gpuResource   = "nvidia.com/gpu"
	devices       = "muster.sh/gpus"         // indices of the pod's GPUs, as in 0,3
	share         = "muster.sh/share"        // how much of each, in thousandths; of all without
	fraction      = "muster.sh/gpu-fraction" // of a GPU that the pod requests
	sharing       = "muster.sh/gpu-sharing"  // of a node; mixed allows both kinds of pods
	queueLabel    = "muster.sh/queue"
	suspended     = "muster.sh/suspended"
	paused        = "muster.sh/Paused"
	gpuCount      = "nvidia.com/gpu.count" // label of nodes
	failedGPUs    = "devcluster.muster.sh/failed-gpus"
)

// whole is a GPU.
const whole = 1000

// Holds reports whether a pod takes room of a node.
func Holds(p *v1.Pod) bool {
	return p.Spec.NodeName != "" && p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed
}

// Nodes returns what is wrong with what pods take of nodes: a GPU that is given twice, or
// that a node does not have, a pod that does not have the GPUs that it asks for, pods with GPUs that the node chooses beside
// pods with others of its GPUs, and more of anything than a node can allocate.
func Nodes(nodes []v1.Node, pods []*v1.Pod) []string {
	on := map[string][]*v1.Pod{}
	for _, p := range pods {
		if Holds(p) {
			on[p.Spec.NodeName] = append(on[p.Spec.NodeName], p)
		}
	}
	var out []string
	for i := range nodes {
		out = append(out, Node(&nodes[i], on[nodes[i].Name])...)
	}
	return out
}

// Node is [Nodes] for one node and the pods that take room of it.
func Node(n *v1.Node, pods []*v1.Pod) []string {
	var out []string
	wrong := func(format string, args ...any) { out = append(out, "node "+n.Name+": "+fmt.Sprintf(format, args...)) }
	room := n.Status.Allocatable
	if n.Annotations[failedGPUs] != "" {
		room = n.Status.Capacity // pods that ran on a GPU that failed keep it
	}
	gpus := room[gpuResource]
	count := gpus.Value()
	if count == 0 { // it publishes them in slices
		count, _ = strconv.ParseInt(n.Labels[gpuCount], 10, 64)
	}
	used := v1.ResourceList{}
	var counted, uncounted []string // pods that the device plugin gives GPUs, and others that have some
	held := map[int][]string{}      // names of pods, by GPU
	sums := map[int]int64{}
	for _, p := range pods {
		requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
		add(used, requests)
		if isPaused(p) {
			continue // others have its GPUs
		}
		list, part, err := gpusOf(p)
		if err != nil {
			wrong("pod %s: %v", p.Name, err)
		}
		for _, d := range list {
			sums[d] += part
			held[d] = append(held[d], p.Name)
		}
		want := requests[gpuResource]
		if p.Spec.SchedulerName == schedulerName && want.Value() > 0 && int64(len(list)) != want.Value() {
			wrong("pod %s asks for %d GPUs and has %v", p.Name, want.Value(), list)
		}
		switch {
		case want.Value() > 0:
			counted = append(counted, p.Name)
		case len(list) > 0:
			uncounted = append(uncounted, p.Name)
		}
	}
	if gpus.Value() > 0 && n.Labels[sharing] != "mixed" && len(counted) > 0 && len(uncounted) > 0 {
		wrong("it chooses GPUs for %s, and may choose those of %s", strings.Join(counted, " "), strings.Join(uncounted, " "))
	}
	for _, d := range slices.Sorted(maps.Keys(sums)) {
		if sums[d] > whole {
			wrong("GPU %d is given to %s: %d thousandths", d, strings.Join(held[d], " "), sums[d])
		}
		if int64(d) >= count {
			wrong("GPU %d is given to %s; the node has %d", d, strings.Join(held[d], " "), count)
		}
	}
	for name, q := range used {
		has, ok := room[name]
		if strings.Contains(string(name), "/") && !ok {
			continue // the kubelet leaves it to others, such as a DRA driver
		}
		if q.Cmp(has) > 0 {
			wrong("%s of %s is given, and it has %s", q.String(), name, has.String())
		}
	}
	if most := room.Pods().Value(); int64(len(pods)) > most {
		wrong("it has %d pods, and room for %d", len(pods), most)
	}
	return out
}

func isPaused(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == paused && c.Status == v1.ConditionTrue })
}

// gpusOf returns the GPUs of a pod, and how much of each it has.
func gpusOf(p *v1.Pod) (list []int, part int64, err error) {
	part = whole
	if text := p.Annotations[share]; text != "" {
		if part, err = strconv.ParseInt(text, 10, 64); err != nil || part < 1 || part > whole {
			return nil, 0, fmt.Errorf("%s is %q", share, text)
		}
	}
	text := p.Annotations[devices]
	if text == "" {
		return nil, part, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		d, err := strconv.Atoi(word)
		if err != nil || d < 0 || slices.Contains(list, d) {
			return nil, 0, fmt.Errorf("%s is %q", devices, text)
		}
		list = append(list, d)
	}
	return list, part, nil
}

// Gangs returns which gangs run and are not whole: fewer of their pods have a node than
// must start together, though as many are there. Gangs of which a pod has ended or is
// being deleted are left out.
func Gangs(groups []schedulingv1beta1.PodGroup, pods []*v1.Pod) []string {
	type gang struct {
		bound, waiting int
		leaving        bool
	}
	gangs := map[string]*gang{}
	for _, p := range pods {
		if p.Spec.SchedulingGroup == nil || p.Spec.SchedulingGroup.PodGroupName == nil {
			continue
		}
		name := p.Namespace + "/" + *p.Spec.SchedulingGroup.PodGroupName
		if gangs[name] == nil {
			gangs[name] = &gang{}
		}
		switch g := gangs[name]; {
		case p.DeletionTimestamp != nil, p.Status.Phase == v1.PodSucceeded, p.Status.Phase == v1.PodFailed:
			g.leaving = true
		case p.Spec.NodeName != "":
			g.bound++
		default:
			g.waiting++
		}
	}
	var out []string
	for i := range groups {
		policy := groups[i].Spec.SchedulingPolicy.Gang
		g := gangs[groups[i].Namespace+"/"+groups[i].Name]
		if policy == nil || g == nil || g.leaving {
			continue
		}
		if least := int(policy.MinCount); g.bound > 0 && g.bound < least && g.bound+g.waiting >= least {
			out = append(out, fmt.Sprintf("gang %s needs %d pods: %d are bound, %d wait", groups[i].Name, least, g.bound, g.waiting))
		}
	}
	return out
}

// Limit is the most that a queue may use: of GPUs, in thousandths, and of other resources,
// of which those that are not listed have no limit.
type Limit struct {
	Queue  string
	GPUs   int64
	Others v1.ResourceList
	// Isolated says that the queue may never use more; a Shared one may while evicted pods leave.
	Isolated bool
}

// Quotas returns which queues use more than they may.
func Quotas(limits []Limit, pods []*v1.Pod) []string {
	var out []string
	for _, l := range limits {
		var gpus int64
		others := v1.ResourceList{}
		var by []string
		for _, p := range pods {
			if p.Labels[queueLabel] != l.Queue || !Holds(p) {
				continue
			}
			if !isPaused(p) {
				gpus += requested(p)
			}
			by = append(by, p.Name+" on "+p.Spec.NodeName)
			add(others, resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{}))
		}
		slices.Sort(by)
		if gpus > l.GPUs {
			out = append(out, fmt.Sprintf("queue %s uses %d thousandths of GPUs, and may use %d: %q", l.Queue, gpus, l.GPUs, by))
		}
		for name, most := range l.Others {
			if q := others[name]; q.Cmp(most) > 0 {
				out = append(out, fmt.Sprintf("queue %s uses %s of %s, and may use %s: %q", l.Queue, q.String(), name, most.String(), by))
			}
		}
	}
	return out
}

// add adds amounts to sums.
func add(sums, amounts v1.ResourceList) {
	for name, q := range amounts {
		sum := sums[name]
		sum.Add(q)
		sums[name] = sum
	}
}

// HasGPUs reports whether a pod requests GPUs, or parts of some.
func HasGPUs(p *v1.Pod) bool { return requested(p) > 0 }

// requested is how much of GPUs a pod requests.
func requested(p *v1.Pod) int64 {
	gpus := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})[gpuResource]
	sum := whole * gpus.Value()
	if f, err := strconv.ParseFloat(p.Annotations[fraction], 64); err == nil {
		sum += int64(f * whole)
	}
	return sum
}

// Suspended returns which Jobs are suspended, or have what the scheduler writes on those
// that it suspends.
func Suspended(jobs []batchv1.Job) []string {
	var out []string
	for i := range jobs {
		j := &jobs[i]
		if j.Spec.Suspend != nil && *j.Spec.Suspend || j.Annotations[suspended] != "" || j.Labels[suspended] != "" {
			out = append(out, fmt.Sprintf("Job %s is suspended: %q", j.Name, j.Annotations[suspended]))
		}
	}
	return out
}

// Waiting returns which pods of the scheduler have no node, or were refused by one.
func Waiting(pods []*v1.Pod) []string {
	var out []string
	for _, p := range pods {
		if p.Spec.SchedulerName != schedulerName {
			continue
		}
		switch {
		case p.DeletionTimestamp != nil:
			out = append(out, fmt.Sprintf("pod %s is being deleted", p.Name))
		case p.Spec.NodeName == "" && p.Status.Phase != v1.PodFailed:
			out = append(out, fmt.Sprintf("pod %s waits", p.Name))
		}
	}
	return out
}

// Refused says that a node refused a pod, or is empty: more was given out than it had.
func Refused(p *v1.Pod) string {
	if p.Status.Phase == v1.PodFailed && strings.HasPrefix(p.Status.Reason, "OutOf") {
		return fmt.Sprintf("node %s refused pod %s: %s", p.Spec.NodeName, p.Name, p.Status.Message)
	}
	return ""
}
