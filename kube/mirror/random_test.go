package mirror

import (
	"fmt"
	"maps"
	"math/bits"
	"reflect"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
	"pgregory.net/rapid"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/peers"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// story is a world in which anything happens, at any time, and a slow check of what
// the scheduler does in it, from the objects alone.
type story struct {
	*world
	rt *rapid.T
	// sent are bindings under way, leaving pods that are to leave, by name.
	sent    map[string]tables.Binding
	leaving map[string]bool
	budgets map[string]*policyv1.PodDisruptionBudget
	serial  int
	gone    []*v1.Pod        // that were evicted, and whose owners have not made others
	limits  map[string]int32 // of volumes, by node
	// lending says that all pods ask Muster alone for GPUs, and many lend them.
	lending bool
}

func (s *story) chance(n int) bool { return rapid.IntRange(1, n).Draw(s.rt, "chance") == 1 }

func pick[V any](s *story, of ...V) V { return of[rapid.IntRange(0, len(of)-1).Draw(s.rt, "pick")] }

// some draws one of the keys of a map, in order; false when it has none.
func some[V any](s *story, of map[string]V) (string, bool) {
	if len(of) == 0 {
		return "", false
	}
	return pick(s, slices.Sorted(maps.Keys(of))...), true
}

func TestRandom(t *testing.T) { random(t, false) }

func TestRandomStandby(t *testing.T) { random(t, true) }

func random(t *testing.T, lending bool) {
	rapid.Check(t, func(rt *rapid.T) {
		s := &story{world: newWorld(rt), rt: rt, lending: lending, sent: map[string]tables.Binding{}, limits: map[string]int32{}, leaving: map[string]bool{}, budgets: map[string]*policyv1.PodDisruptionBudget{}}
		s.class("late", true)
		nodes := 3
		if lending {
			nodes = 1 // pods have to borrow
		}
		for range nodes {
			s.newNode()
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			s.happen()
			if s.chance(2) {
				s.decide()
			}
		}
		s.quiet()
	})
}

// happen draws something that happens.
func (s *story) happen() {
	what := pick(s, "pod", "pod", "pod", "pod", "others", "answer", "answer", "answer", "leave", "back", "back", "end", "relabel", "resize", "own", "node", "cordon", "drop", "smaller", "volume", "attach", "budget", "rest", "rest", "rest", "rebuild")
	if s.lending {
		what = pick(s, "pod", "pod", "answer", "answer", "answer", "rest", "rest", "rest", "leave", "end", "resize", "own", "cordon", "rebuild")
	}
	s.t.Log(what)
	switch what {
	case "pod":
		s.newPods()
	case "others":
		if n, ok := some(s, s.nodes); ok {
			if s.chance(4) {
				// Without labels: it is known only by what it takes while another
				// pod has the GPU that it names.
				s.pod(s.name(), foreign(n), asking("cpu", "1", v1alpha1.GPUResource, "1"))
			} else {
				with := []change[*v1.Pod]{foreign(n), asking("cpu", "1", hca, pick(s, "0", "0", "1"))}
				if name := s.name(); s.chance(4) {
					s.claim(name, "")
					s.volume(name, host, n)
					s.pod(name, append(with, using(name))...)
				} else {
					s.pod(name, append(with, s.label, s.term, s.port)...)
				}
			}
		}
	case "answer":
		if p, ok := some(s, s.sent); ok {
			s.answer(p)
		}
	case "leave":
		if p, ok := some(s, s.leaving); ok {
			s.over(p)
		}
	case "back":
		if len(s.gone) > 0 {
			s.back(s.gone[0])
			s.gone = s.gone[1:]
		}
	case "end":
		if p, ok := some(s, s.pods); ok {
			s.over(p)
		}
	case "relabel":
		// Not those that are known by what they take alone.
		if name, ok := some(s, s.pods); ok {
			p := s.pods[name]
			ours := p.Spec.SchedulerName == v1alpha1.SchedulerName && len(p.Spec.Volumes) == 0
			if ours || len(p.Labels) > 0 && p.Spec.SchedulerName != v1alpha1.SchedulerName {
				s.pod(name, s.label)
			}
		}
	case "resize":
		if name, ok := some(s, s.pods); ok {
			c := &s.pods[name].Spec.Containers[0]
			ask := c.Resources.Requests.DeepCopy()
			ask["cpu"] = amounts("cpu", pick(s, "1", "2", "5"))["cpu"]
			if s.lending { // one that asks for more than there is would lend what it does not have
				ask["cpu"] = amounts("cpu", "1")["cpu"]
			}
			s.pod(name, func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests = ask })
		}
	case "own":
		// A pod is taken out of its owner's hands, or given to one.
		if name, ok := some(s, s.pods); ok {
			if p := s.pods[name]; p.Spec.SchedulerName == v1alpha1.SchedulerName && p.Labels[v1alpha1.GangLabel] == "" {
				s.pod(name, func(p *v1.Pod) {
					if p.OwnerReferences != nil {
						p.OwnerReferences = nil
						return
					}
					of("apps/v1", "ReplicaSet", p.Name)(p)
				})
			}
		}
	case "node":
		s.newNode()
	case "cordon":
		if n, ok := some(s, s.nodes); ok {
			s.node(n, "", func(n *v1.Node) { n.Spec.Unschedulable = !n.Spec.Unschedulable })
		}
	case "smaller":
		if n, ok := some(s, s.nodes); ok {
			s.node(n, "", func(n *v1.Node) {
				maps.Copy(n.Status.Allocatable, amounts("cpu", pick(s, "2", "4", "16"), hca, pick(s, "0", "1", "2")))
			})
		}
	case "drop":
		if n, ok := some(s, s.nodes); ok && len(s.nodes) > 2 {
			s.drop(n)
		}
	case "volume":
		s.provision()
	case "attach":
		if n, ok := some(s, s.nodes); ok {
			s.limits[n] = pick[int32](s, -1, 0, 1, 2)
			s.attaches(n, s.limits[n])
		}
	case "budget":
		b := budget(pick(s, "one", "two"), pick[int32](s, 0, 0, 1), pick(s, "app=a", "app=b"))
		if s.chance(3) {
			delete(s.budgets, b.Name)
			inBudgets((*peers.Index).ForgetBudget)(s.m, peers.BudgetOf(b))
		} else {
			s.budgets[b.Name] = b
			s.budget(b)
		}
	case "rest":
		s.rest()
	case "rebuild":
		if s.chance(3) {
			if err := s.m.rebuild(); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

// rest has a pod lend its GPUs, or asks for them again.
func (s *story) rest() {
	able := maps.Clone(s.pods)
	maps.DeleteFunc(able, func(_ string, p *v1.Pod) bool {
		return p.Spec.NodeName == "" || p.Annotations[v1alpha1.GPUCountAnnotation] == "" || p.Annotations[v1alpha1.ClassAnnotation] == "LP"
	})
	if len(able) == 0 || s.chance(4) {
		able = s.pods
	}
	name, ok := some(s, able)
	if !ok || s.pods[name].Spec.SchedulerName != v1alpha1.SchedulerName || s.pods[name].Spec.NodeName == "" {
		return
	}
	s.pod(name, func(p *v1.Pod) {
		if p.Annotations[v1alpha1.StandbyUntilAnnotation] != "" && s.chance(2) {
			delete(p.Annotations, v1alpha1.StandbyUntilAnnotation)
			return
		}
		p.Annotations[v1alpha1.StandbyUntilAnnotation] = s.now.Add(pick(s, 0, 30*time.Minute, 10*time.Hour)).UTC().Format(time.RFC3339)
		p.Annotations[v1alpha1.StandbyKeepsAnnotation] = "cpu=1,memory=1Gi"
		if s.chance(4) {
			delete(p.Annotations, v1alpha1.StandbyKeepsAnnotation)
		}
	})
	if s.chance(4) {
		return
	}
	s.pod(name, func(p *v1.Pod) { // it gives the rest back, and perhaps takes it again
		ask := p.Spec.Containers[0].Resources.Requests.DeepCopy()
		place := s.m.Pods[p.UID].Object.Amounts
		all := amounts("cpu", fmt.Sprint(place.CPUMilli, "m"), "memory", fmt.Sprint(place.MemMiB, "Mi"))
		maps.Copy(ask, pick(s, amounts("cpu", "1", "memory", "1Gi"), amounts("cpu", "1", "memory", "1Gi"), all))
		p.Spec.Containers[0].Resources.Requests = ask
	})
}

// told writes the condition Standby on pods. One whose GPUs are its own again has them alone.
func (s *story) told(list []act.Report) {
	for _, x := range list {
		p := s.pods["default/"+x.Name]
		if p == nil || p.UID != x.UID {
			continue
		}
		lends := x.Reason == v1alpha1.StandbyLending || x.Reason == v1alpha1.StandbyReturning
		for _, o := range s.pods {
			if x.Reason == v1alpha1.StandbyResumed && o != p && s.where(o) == p.Spec.NodeName && s.devices(o)&s.devices(p) != 0 {
				s.t.Fatalf("%s goes on, and %s has GPUs of it", p.Name, o.Name)
			}
		}
		status := v1.ConditionFalse
		if lends {
			status = v1.ConditionTrue
		}
		p.Status.Conditions = []v1.PodCondition{{Type: v1alpha1.StandbyCondition, Status: status, Reason: x.Reason, Message: x.Message}}
		s.m.podSeen(objects.TrimPod(p))
	}
}

// devices is the set of GPUs that a pod has, or is to have.
func (s *story) devices(p *v1.Pod) (set uint64) {
	text := p.Annotations[v1alpha1.GPUsAnnotation]
	if b := s.sent[p.Name]; b.Of != nil {
		text = b.Annotations[v1alpha1.GPUsAnnotation]
	}
	list, err := translate.ParseDevices(text)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, d := range list {
		set |= 1 << d
	}
	return set
}

// shares reports whether two pods may have a GPU of a node both: one lends it, and the other is of
// an LP job, and the kubelet does not count its GPUs.
func (s *story) shares(p, o *v1.Pod) bool {
	borrows := func(p *v1.Pod) bool {
		_, counted := p.Spec.Containers[0].Resources.Requests[v1alpha1.GPUResource]
		return p.Annotations[v1alpha1.ClassAnnotation] == "LP" && !counted
	}
	lends := func(p *v1.Pod) bool { x := s.m.Pods[p.UID]; return x != nil && x.Lends() }
	return lends(p) && borrows(o) || lends(o) && borrows(p)
}

// hca is a resource of nodes that has no meaning to the scheduler.
const hca = "rdma/hca"

func (s *story) name() string {
	s.serial++
	return fmt.Sprint("p", s.serial)
}

func (s *story) newNode() {
	s.serial++
	s.node(fmt.Sprint("n", s.serial), pick(s, "", "1", "2", "3"), func(n *v1.Node) {
		n.Status.Allocatable = amounts("cpu", pick(s, "4", "16"), "memory", "64Gi", "pods", pick(s, "3", "110"), v1alpha1.GPUResource, pick(s, "1", "4"))
		if s.chance(2) {
			maps.Copy(n.Status.Allocatable, amounts(hca, pick(s, "0", "1", "2")))
		}
	})
}

// label draws labels for a pod.
func (s *story) label(p *v1.Pod) {
	delete(p.Labels, "app")
	if v := pick(s, "", "a", "b"); v != "" {
		p.Labels["app"] = v
	}
}

// term draws what a pod requires of others.
func (s *story) term(p *v1.Pod) {
	key := func() string { return pick(s, host, rack.Label) }
	label := func() string { return pick(s, "app=a", "app=b") }
	for s.chance(3) {
		switch pick(s, "near", "apart", "apart", "spread") {
		case "near":
			near(key(), label())(p)
		case "apart":
			apart(key(), label())(p)
		case "spread":
			spread(key(), label(), pick[int32](s, 1, 2), func(c *v1.TopologySpreadConstraint) {
				if c.MinDomains = nil; s.chance(3) {
					c.MinDomains = new(pick[int32](s, 1, 2, 3))
				}
			})(p)
		}
	}
}

func (s *story) port(p *v1.Pod) {
	if s.chance(6) {
		hostPort(80, pick(s, v1.ProtocolTCP, v1.ProtocolUDP), pick(s, "", "10.0.0.1", "10.0.0.2"))(p)
	}
}

// newPods draws a pod, or a gang of them, alike or of several roles.
func (s *story) newPods() {
	var like v1.Pod
	like.Labels, like.Spec.Containers = map[string]string{}, []v1.Container{{}}
	size := pick(s, 1, 1, 1, 2, 3)
	priority := pick[int32](s, 0, 0, 9)
	ask := amounts("cpu", pick(s, "1", "3"), "memory", pick(s, "1Gi", "40Gi"), v1alpha1.GPUResource, pick(s, "0", "1", "2"), hca, pick(s, "0", "0", "0", "1", "2"))
	alone := (s.lending || s.chance(2)) && !ask.Name(v1alpha1.GPUResource, resource.DecimalSI).IsZero() // it asks Muster alone
	count := ask.Name(v1alpha1.GPUResource, resource.DecimalSI).String()
	if alone {
		delete(ask, v1alpha1.GPUResource)
	}
	class := pick(s, "HP", "LP")
	late := !s.lending && s.chance(8)
	if s.lending {
		delete(ask, hca)
	} else if !late {
		s.label(&like)
		s.term(&like)
		s.port(&like)
	}
	group := s.name()
	owned := !s.lending && s.chance(2)
	exclusive, mixed := !s.lending && s.chance(10), !s.lending && !late && s.chance(2)
	roles := size == 3 && s.chance(2)
	for k := range size {
		s.pod(s.name(), func(p *v1.Pod) {
			if mixed && s.chance(2) {
				like.Spec.Affinity, like.Spec.TopologySpreadConstraints = nil, nil
				s.label(&like)
				s.term(&like)
			}
			if alone {
				p.Annotations[v1alpha1.GPUCountAnnotation] = count
			}
			p.Annotations[v1alpha1.ClassAnnotation] = class
			maps.Copy(p.Labels, like.Labels)
			p.Spec.Affinity, p.Spec.TopologySpreadConstraints, p.Spec.Priority = like.Spec.Affinity, like.Spec.TopologySpreadConstraints, &priority
			c := &p.Spec.Containers[0]
			c.Resources.Requests, c.Ports = ask, like.Spec.Containers[0].Ports
			if size > 1 {
				gang(group, size)(p)
			}
			if owned {
				of("apps/v1", "StatefulSet", group)(p)
				p.Annotations[v1alpha1.CheckpointIntervalAnnotation] = "1m"
			}
			if roles { // a ps, and one worker of two
				p.Annotations[v1alpha1.MinMemberAnnotation], p.Annotations[v1alpha1.TaskAnnotation] = "ps=1,worker=1", "worker"
				if k == 2 { // the last in the order: the least does not come of itself
					p.Annotations[v1alpha1.TaskAnnotation] = "ps"
				}
			}
			switch {
			case late:
				s.claim(p.Name, "late")
				using(p.Name)(p)
			case exclusive:
				name := pick(s, "one", "two")
				if s.claims["default/"+name] == nil {
					s.claim(name, "", func(c *v1.PersistentVolumeClaim) {
						c.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
					})
					if n, ok := some(s, s.nodes); ok {
						s.volume(name, host, n)
					}
				}
				using(name)(p)
			}
		})
	}
}

// decide lets the scheduler decide, checks what it does, and sends it on its way.
func (s *story) decide() {
	s.now = s.now.Add(pick(s, time.Second, time.Minute, 10*time.Minute))
	before := map[types.UID]bool{}
	for _, uid := range s.m.Storage.Making() {
		before[uid] = true
	}
	kept, told := s.kept()
	acts := s.m.decide(core.Time(s.now.UnixNano()))
	touched := map[string][]*v1.Pod{} // what comes to a node
	for _, uid := range s.m.Storage.Making() {
		if act := s.m.Pods[uid].Withheld; !before[uid] {
			touched[act.Node] = append(touched[act.Node], s.object(act.Of))
		}
	}
	for i := 0; i < len(acts.Bind); {
		from, g := i, acts.Bind[i].Of.Group
		for ; i < len(acts.Bind) && acts.Bind[i].Of.Group == g; i++ {
			s.send(&acts.Bind[i])
			if before[acts.Bind[i].Of.Object.UID] {
				continue // it was placed when its volume was asked for
			}
			touched[acts.Bind[i].Node] = append(touched[acts.Bind[i].Node], s.object(acts.Bind[i].Of))
		}
		// Of a gang of which some pods are over, the rest may start.
		// Some may have been placed before, when a volume was asked for.
		late := slices.ContainsFunc(acts.Bind[from:i], func(b tables.Binding) bool { return before[b.Of.Object.UID] })
		if !late && g.Gang() && g.Count("", (*tables.Pod).Runs) == i-from && !slices.Contains(g.Slots, nil) && g.Broken((*tables.Pod).Runs) {
			s.t.Errorf("gang %s starts with fewer than its minimum: %d of %v", g.Job, i-from, g.Roles)
		}
		for k := from; k < i; k++ {
			if before[acts.Bind[k].Of.Object.UID] {
				continue
			}
			with := map[*v1.Pod]bool{}
			for _, b := range acts.Bind[from:i] {
				with[s.object(b.Of)] = b.Of.Task != acts.Bind[k].Of.Task
			}
			if why := s.forbids(s.object(acts.Bind[k].Of), acts.Bind[k].Node, with); why != "" {
				s.show()
				s.t.Fatalf("%s is bound to %s: %s", acts.Bind[k].Of.Object.Name, acts.Bind[k].Node, why)
			}
		}
	}
	for n, pods := range touched {
		if why := s.overfull(n, pods); why != "" {
			s.show()
			s.t.Fatalf("%s: %s", n, why)
		}
	}
	for _, e := range acts.Evict {
		s.leaving[e.Of.Object.Name] = true
		if e.Of.Group == nil {
			continue // the engine refused it where it is
		}
		for uid := range e.Of.Group.Pods {
			if e.Reason != core.MemberLost.String() && e.Reason != core.StandbyReturns.String() && kept[uid] && !told[e.Of.Object.UID] {
				s.show()
				s.t.Fatalf("%s is evicted, by %s, though a budget holds a pod of its job", e.Of.Object.Name, e.Reason)
			}
		}
	}
	for _, c := range slices.Clone(acts.Choose) {
		s.choose(c)
	}
	said := slices.Clone(acts.Standby)
	s.m.acts.Drop()
	s.told(said)
}

// kept returns the pods that run and may not be evicted, as their budgets say, and
// those that were told to leave before.
func (s *story) kept() (kept, told map[types.UID]bool) {
	kept, told = map[types.UID]bool{}, map[types.UID]bool{}
	for uid, p := range s.m.Pods {
		told[uid] = p.State == tables.PodLeaving
		of, closed := 0, false
		for _, b := range s.budgets {
			if b.Spec.Selector.MatchLabels["app"] == s.object(p).Labels["app"] {
				of++
				closed = closed || b.Status.DisruptionsAllowed == 0
			}
		}
		kept[uid] = p.State == tables.PodBound && (closed || of > 1)
	}
	return kept, told
}

// show writes how things stand, for those who look for a fault.
func (s *story) show() {
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		n := s.m.Nodes[name]
		s.t.Logf("%s: %+v, others %+v, %d pods", name, n.Told, n.Others, n.Count)
	}
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		o := s.pods[name]
		p := s.m.Pods[o.UID]
		job := "none"
		if p.Group != nil {
			job = fmt.Sprint(p.Group.Job)
			if p.Task != nil {
				job += fmt.Sprintf(" %s %v", p.Task.Name, p.Task.Around)
			}
		}
		s.t.Logf("%s on %q: job %s, state %d, %v, %+v", name, s.where(o), job, p.State, o.Labels, p.Object.Amounts)
	}
}

func (s *story) object(p *tables.Pod) *v1.Pod { return s.pods["default/"+p.Object.Name] }

func (s *story) send(b *tables.Binding) {
	name := b.Of.Object.Name
	if p := s.object(b.Of); p == nil || p.Spec.NodeName != "" || s.sent[name].Of != nil && s.sent[name].Of.Object.UID == p.UID {
		s.t.Fatalf("%s is bound twice, or is no more", name)
	}
	s.t.Log("bind", name, b.Node)
	s.sent[name] = *b
}

// answer tells of the outcome of a binding: it is done, or it failed, or the pod is
// no more; now and then the pod is seen on its node first.
func (s *story) answer(name string) {
	b := s.sent[name]
	delete(s.sent, name)
	p := s.pods["default/"+name]
	s.t.Log("answer", name)
	uid := b.Of.Object.UID
	if p == nil || p.UID != uid {
		s.m.bound(uid, false, true)
		return
	}
	switch pick(s, "ok", "ok", "seen", "failed", "gone") {
	case "gone":
		delete(s.pods, "default/"+name)
		delete(s.leaving, name)
		s.m.bound(uid, false, true)
	case "failed":
		delete(s.leaving, name) // what it was to leave for is over
		s.m.bound(uid, false, false)
	case "ok":
		p.Spec.NodeName = b.Node
		maps.Copy(p.Annotations, b.Annotations)
		s.m.bound(uid, true, false)
		s.m.podSeen(objects.TrimPod(p))
	case "seen":
		p.Spec.NodeName = b.Node
		maps.Copy(p.Annotations, b.Annotations)
		s.m.podSeen(objects.TrimPod(p))
		s.m.bound(uid, true, false)
	}
}

// over ends a pod: it is deleted, or has succeeded and is deleted later.
func (s *story) over(name string) {
	key := "default/" + name
	p := s.pods[key]
	if p == nil {
		key, p = name, s.pods[name]
	}
	if p == nil {
		delete(s.leaving, name)
		return
	}
	evicted := s.leaving[p.Name]
	delete(s.leaving, p.Name)
	delete(s.pods, key)
	if evicted && p.OwnerReferences != nil && s.chance(2) {
		s.gone = append(s.gone, p)
	} else if s.chance(2) {
		p.Status.Phase = v1.PodSucceeded
		s.m.podSeen(objects.TrimPod(p))
	}
	s.m.podGone(p.UID)
}

// back has the owner of a pod that was evicted make another.
func (s *story) back(old *v1.Pod) {
	s.pod(s.name(), func(p *v1.Pod) {
		p.Labels, p.OwnerReferences, p.Spec = maps.Clone(old.Labels), old.OwnerReferences, *old.Spec.DeepCopy()
		p.Spec.NodeName = ""
		for _, key := range []string{v1alpha1.MinMemberAnnotation, v1alpha1.TaskAnnotation, v1alpha1.CheckpointIntervalAnnotation} {
			if v, ok := old.Annotations[key]; ok {
				p.Annotations[key] = v
			}
		}
	})
}

// drop deletes a node, and then its pods.
func (s *story) drop(n string) {
	delete(s.nodes, n)
	s.m.nodeGone(n)
	for _, name := range slices.Sorted(maps.Keys(s.sent)) {
		if b := s.sent[name]; b.Node == n {
			delete(s.sent, name)
			s.m.bound(b.Of.Object.UID, false, false)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		if s.pods[name].Spec.NodeName == n {
			s.over(name)
		}
	}
}

// provision makes a volume that was asked for, or gives its node back.
func (s *story) provision() {
	for _, name := range slices.Sorted(maps.Keys(s.claims)) {
		c := s.claims[name]
		node := c.Annotations[volume.AnnSelectedNode]
		if node == "" || c.Spec.VolumeName != "" || s.chance(3) {
			continue
		}
		if s.chance(3) {
			s.claim(c.Name, "", func(c *v1.PersistentVolumeClaim) { delete(c.Annotations, volume.AnnSelectedNode) })
		} else {
			s.volume(c.Name, host, node)
		}
	}
}

// where returns the node of a pod: where it is, is being bound to, or is to be when
// its volumes are there.
func (s *story) where(p *v1.Pod) string {
	if p.Spec.NodeName != "" {
		return p.Spec.NodeName
	}
	if b := s.sent[p.Name]; b.Of != nil {
		return b.Node
	}
	if x := s.m.Pods[p.UID]; x != nil && x.Withheld != nil {
		return x.Withheld.Node
	}
	return ""
}

// means reports whether a selector of a pod means another.
func means(sel *metav1.LabelSelector, p *v1.Pod) bool {
	q, err := metav1.LabelSelectorAsSelector(sel)
	return err == nil && q.Matches(labels.Set(p.Labels))
}

// domain is a node's domain by a label; false when it has none.
func (s *story) domain(node, key string) (string, bool) {
	n := s.nodes[node]
	if n == nil {
		return "", false
	}
	d, ok := n.Labels[key]
	return d, ok && d != ""
}

// forbids says why a pod may not be where it is, or would go, as Kubernetes' rules
// have it. Of what starts with it some may have come later.
func (s *story) forbids(p *v1.Pod, node string, later map[*v1.Pod]bool) string {
	n := s.nodes[node]
	if n == nil || n.Spec.Unschedulable {
		return "the node is closed"
	}
	var placed []*v1.Pod
	for _, o := range s.pods {
		if o != p && s.where(o) != "" {
			placed = append(placed, o)
		}
	}
	together := func(o *v1.Pod, key string) bool {
		a, ok := s.domain(node, key)
		b, has := s.domain(s.where(o), key)
		return ok && has && a == b
	}
	for _, o := range placed {
		for _, t := range antiOf(p) {
			if means(t.LabelSelector, o) && together(o, t.TopologyKey) {
				return "it must not be near " + o.Name
			}
		}
		for _, t := range antiOf(o) {
			if means(t.LabelSelector, p) && together(o, t.TopologyKey) {
				return o.Name + " must not be near it"
			}
		}
		if s.where(o) == node && clash(p, o) {
			return "its port is " + o.Name + "'s"
		}
		for _, c := range p.Spec.Volumes {
			for _, d := range o.Spec.Volumes {
				if c.Name == d.Name {
					return "its volume is " + o.Name + "'s"
				}
			}
		}
	}
	if why := s.notNear(p, node, placed, together, later); why != "" {
		return why
	}
	for i := range p.Spec.TopologySpreadConstraints {
		if len(p.Spec.Volumes) > 0 {
			break // only the nodes count from which its volume can be reached
		}
		if why := s.unevenWith(p, &p.Spec.TopologySpreadConstraints[i], node, placed, later); why != "" {
			return why
		}
	}
	return ""
}

func (s *story) notNear(p *v1.Pod, node string, placed []*v1.Pod, together func(*v1.Pod, string) bool, later map[*v1.Pod]bool) string {
	if p.Spec.Affinity == nil || p.Spec.Affinity.PodAffinity == nil {
		return ""
	}
	terms := p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	all := func(o *v1.Pod) bool {
		return !slices.ContainsFunc(terms, func(t v1.PodAffinityTerm) bool { return !means(t.LabelSelector, o) })
	}
	first := all(p) && !slices.ContainsFunc(placed, func(o *v1.Pod) bool { return !later[o] && all(o) })
	for _, t := range terms {
		if _, ok := s.domain(node, t.TopologyKey); !ok {
			return "its node has no " + t.TopologyKey
		}
		if !first && !slices.ContainsFunc(placed, func(o *v1.Pod) bool { return all(o) && together(o, t.TopologyKey) }) {
			return "it must be near others by " + t.TopologyKey
		}
	}
	return ""
}

// unevenWith is uneven whichever of the later ones were there already.
func (s *story) unevenWith(p *v1.Pod, c *v1.TopologySpreadConstraint, node string, placed []*v1.Pod, later map[*v1.Pod]bool) string {
	why := s.uneven(p, c, node, placed)
	for k, o := range placed {
		if why != "" && later[o] {
			why = s.unevenWith(p, c, node, slices.Delete(slices.Clone(placed), k, k+1), later)
		}
	}
	return why
}

func (s *story) uneven(p *v1.Pod, c *v1.TopologySpreadConstraint, node string, placed []*v1.Pod) string {
	count := map[string]int32{}
	for name := range s.nodes {
		if d, ok := s.domain(name, c.TopologyKey); ok {
			count[d] += 0
		}
	}
	here, ok := s.domain(node, c.TopologyKey)
	if !ok {
		return "its node has no " + c.TopologyKey
	}
	for _, o := range append(slices.Clone(placed), p) {
		at := s.where(o)
		if o == p {
			at = node
		}
		if d, ok := s.domain(at, c.TopologyKey); ok && means(c.LabelSelector, o) {
			count[d]++
		}
	}
	fewest := count[here]
	for _, k := range count {
		fewest = min(fewest, k)
	}
	if c.MinDomains != nil && int32(len(count)) < *c.MinDomains {
		fewest = 0
	}
	if count[here]-fewest > c.MaxSkew {
		return fmt.Sprintf("%v pods by %s, at most %d more than the fewest are allowed", count, c.TopologyKey, c.MaxSkew)
	}
	return ""
}

func antiOf(p *v1.Pod) []v1.PodAffinityTerm {
	if p.Spec.Affinity == nil || p.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	return p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

func clash(p, o *v1.Pod) bool {
	for _, a := range p.Spec.Containers[0].Ports {
		for _, b := range o.Spec.Containers[0].Ports {
			if a.HostPort == b.HostPort && a.Protocol == b.Protocol && (a.HostIP == b.HostIP || a.HostIP == "" || b.HostIP == "") {
				return true
			}
		}
	}
	return false
}

// overfull says what a node has too little of for pods that come to it. What others
// have put there is their affair.
func (s *story) overfull(node string, come []*v1.Pod) string {
	n := s.nodes[node]
	left := n.Status.Allocatable.DeepCopy()
	used, pods, volumes := uint64(0), int64(0), 0
	for _, p := range s.pods {
		if s.where(p) != node {
			continue
		}
		pods++
		volumes += len(p.Spec.Volumes)
		for name, q := range s.holds(p) {
			l := left[name]
			l.Sub(q)
			left[name] = l
		}
		for _, o := range s.pods {
			if twice := s.devices(p) & s.devices(o); twice != 0 && o != p && s.where(o) == node && !s.shares(p, o) {
				return fmt.Sprintf("devices %s are given to %s and %s", translate.Devices(twice), p.Name, o.Name)
			}
		}
		used |= s.devices(p)
	}
	for name, q := range left {
		asked := slices.ContainsFunc(come, func(p *v1.Pod) bool {
			ask := p.Spec.Containers[0].Resources.Requests[name]
			return ask.Sign() > 0
		})
		if q.Sign() < 0 && asked {
			return fmt.Sprintf("%s is overdrawn by %s", name, q.String())
		}
	}
	if most, ok := s.limits[node]; ok && most >= 0 && volumes > int(most) && slices.ContainsFunc(come, func(p *v1.Pod) bool { return len(p.Spec.Volumes) > 0 }) {
		return fmt.Sprintf("%d volumes, at most %d", volumes, most)
	}
	if most := n.Status.Allocatable.Pods().Value(); pods > most {
		return fmt.Sprintf("%d pods, at most %d", pods, most)
	}
	if gpus := n.Status.Allocatable[v1alpha1.GPUResource]; int64(bits.Len64(used)) > gpus.Value() {
		return "a device is given that is not there"
	}
	return ""
}

// holds is what a pod takes of its node. A pod that lends has what it keeps and what others have of
// the rest; a kubelet makes it larger again when these have left.
func (s *story) holds(p *v1.Pod) v1.ResourceList {
	lends := func(p *v1.Pod) bool { x := s.m.Pods[p.UID]; return x != nil && x.Lends() }
	guest := func(o, of *v1.Pod) bool {
		return o != of && lends(of) && !lends(o) && s.where(o) == s.where(of) && s.devices(o)&s.devices(of) != 0
	}
	for _, o := range s.pods {
		if guest(p, o) {
			return nil
		}
	}
	all := p.Spec.Containers[0].Resources.Requests
	if !lends(p) {
		return all
	}
	all = all.DeepCopy()
	for name, keeps := range amounts("cpu", "1", "memory", "1Gi") {
		if q := all[name]; q.Cmp(keeps) < 0 {
			keeps = q
		}
		for _, o := range s.pods {
			if guest(o, p) {
				keeps.Add(o.Spec.Containers[0].Resources.Requests[name])
			}
		}
		if q := all[name]; q.Cmp(keeps) < 0 {
			all[name] = keeps
		}
	}
	return all
}

// quiet lets everything under way come to an end and takes everything away: nothing
// must be left.
func (s *story) quiet() {
	s.made = true
	for range 20 {
		for len(s.sent) > 0 {
			name, _ := some(s, s.sent)
			s.answer(name)
		}
		for len(s.leaving) > 0 {
			name, _ := some(s, s.leaving)
			s.over(name)
		}
		s.provision()
		s.decide()
		if len(s.sent)+len(s.leaving) == 0 {
			s.now = s.now.Add(time.Hour)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		s.over(name)
	}
	s.decide()
	s.now = s.now.Add(time.Hour) // no pod comes back
	s.decide()
	m := s.m
	if len(m.returning)+len(m.Groups)+len(m.Jobs)+len(m.Pods)+m.Peers.Len()+m.Storage.Len()+len(m.Storage.Making()) > 0 {
		s.t.Errorf("left: groups %d, jobs %d, pods %d, peers %d", len(m.Groups), len(m.Jobs), len(m.Pods), m.Peers.Len())
	}
	for _, n := range m.Nodes {
		if n.Count != 0 || !reflect.DeepEqual(n.Others, translate.Amounts{}) || len(n.Pods) > 0 {
			s.t.Errorf("node %s still has %d pods of others, %+v, %d pods", n.Object.Name, n.Count, n.Others, len(n.Pods))
		}
	}
}
