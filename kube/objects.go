package kube

import (
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/devices"
	"github.com/muster-sched/muster/kube/translate"
)

// What is kept of the API's objects. A cluster has more pods than memory should
// hold whole, so each is cut down as it is read off the wire.

// podObject is what the scheduler needs of a pod.
type podObject struct {
	metav1.ObjectMeta // name, namespace, UID and resource version alone
	created           time.Time
	started           time.Time // when it was bound, as far as known
	node              string
	phase             v1.PodPhase
	deleting          bool
	// labels, terms and ports are what matters to the pods around it.
	labels translate.Labels
	terms  []translate.Term
	ports  []translate.Port
	claims []translate.Claim

	// ours says that Muster schedules it. What follows is set for such pods.
	ours       bool
	membership translate.Membership
	attributes translate.Attributes
	priority   int32
	class      string // its PriorityClass
	never      bool   // it preempts no others
	request    core.Request
	wrong      string // what the author must change before it can run
	quotaGate  bool   // it has our scheduling gate
	otherGates bool   // it has others': it is not ready
	// waits says that it has the Waiting condition, True; waitingSince since when.
	waits        bool
	waitingSince time.Time
	owner        *metav1.OwnerReference
	counts       bool            // the Job controller counts it
	uncounted    bool            // it does not, because the pod was to be evicted
	slow         bool            // it asks for more time to end than it gets
	replaceable  bool            // by another pod of its owner, before it goes
	move         *translate.Move // of one that moves, or did not in the end
	staysAsTold  bool            // its status says that it did not
	deviceClaims []devices.ClaimRef
	// resource is the resource by which it asks for GPUs; extended the claim that
	// was made for it where DRA provides that resource.
	resource v1.ResourceName
	extended string
	pool     translate.Pool

	// bears are the troubles of a node that it tolerates for ever.
	bears [troubles]bool

	// amounts, gpus and share are what it holds of its node, when it has one.
	amounts    translate.Amounts
	gpus       []int
	share      core.Milli
	backfilled bool
	// held is [translate.Held], and in request already.
	held core.Milli
	// said is what its labels and annotations say that counts until it ends, as
	// recorded in its status where it is; says is what they say now.
	said, says string
	// record and groupRecord are what its status has, of itself and of its PodGroup.
	record, groupRecord string
	// unread says that it could not be read: nothing but the first lines is known,
	// and amounts.
	unread bool
}

// trimPod cuts a pod down.
func trimPod(p *v1.Pod) *podObject {
	o := &podObject{
		ObjectMeta: trimMeta(&p.ObjectMeta),
		created:    p.CreationTimestamp.Time, node: p.Spec.NodeName, phase: p.Status.Phase, deleting: p.DeletionTimestamp != nil,
		ours:   p.Spec.SchedulerName == v1alpha1.SchedulerName,
		labels: translate.LabelsOf(p.Labels), ports: translate.Ports(p), claims: translate.Claims(p),
	}
	o.started = o.created
	for i := range p.Status.Conditions {
		switch c := &p.Status.Conditions[i]; c.Type {
		case v1.PodScheduled:
			if c.Status == v1.ConditionTrue {
				o.started = c.LastTransitionTime.Time
			}
		case v1alpha1.WaitingCondition:
			if o.waits = c.Status == v1.ConditionTrue; o.waits {
				o.waitingSince = c.LastTransitionTime.Time
			}
		}
	}
	o.amounts = translate.Requests(p)
	if o.ours {
		o.said = translate.SaidBy(p).String()
		o.says = o.said
		if o.record, o.groupRecord = translate.Record(p); o.record != "" && o.node != "" {
			p, o.said = translate.AsAdmitted(p, o.record), o.record
		}
	}
	if o.node != "" {
		// On another scheduler's pod only its author can have written it.
		if gpus, err := translate.ParseDevices(p.Annotations[v1alpha1.GPUsAnnotation]); err == nil && o.ours {
			o.gpus = gpus
		}
		o.share = translate.Share(p)
		o.backfilled = p.Annotations[v1alpha1.BackfilledAnnotation] == "true"
	}
	if !o.ours {
		// Terms that the API server let pass and that cannot be read match no pod.
		o.terms, _ = translate.AntiTerms(p)
		return o
	}
	wrong := func(err error) {
		if err != nil && o.wrong == "" {
			o.wrong = err.Error()
		}
	}
	wrong(o.attributes.Read(p))
	o.membership = translate.MembershipOf(p, &o.attributes)
	var err error
	o.request, err = translate.Request(p, &o.attributes)
	wrong(err)
	if o.node != "" {
		o.held = translate.Held(p)
		if o.request.GPU = max(o.request.GPU, o.held); o.attributes.GPUMemory > 0 && o.amounts.GPUs == 0 {
			o.request.GPU = 0 // resolveMemory says
		}
	}
	o.pool = translate.PodPool(p, &o.request)
	o.terms, err = translate.Terms(p)
	wrong(err)
	if p.Spec.Priority != nil {
		o.priority = *p.Spec.Priority
	}
	o.class, o.never = p.Spec.PriorityClassName, p.Spec.PreemptionPolicy != nil && *p.Spec.PreemptionPolicy == v1.PreemptNever
	for _, g := range p.Spec.SchedulingGates {
		if g.Name == v1alpha1.QuotaGate {
			o.quotaGate = true
		} else {
			o.otherGates = true
		}
	}
	o.bears[notReady], o.bears[unreachable] = bears(p, v1.TaintNodeNotReady), bears(p, v1.TaintNodeUnreachable)
	o.owner = metav1.GetControllerOf(p)
	o.slow = p.Spec.TerminationGracePeriodSeconds != nil && *p.Spec.TerminationGracePeriodSeconds > int64(act.MaxGrace/time.Second)
	o.counts, o.uncounted = translate.Counted(&p.ObjectMeta), translate.Uncounted(&p.ObjectMeta)
	o.replaceable, o.move, o.staysAsTold = translate.Replaceable(p) != nil, translate.MoveOf(p), translate.StaysAsTold(p)
	o.deviceClaims = devices.PodClaims(p)
	if o.request.GPU >= core.WholeGPU {
		o.resource = translate.GPUResource(p)
	}
	if s := p.Status.ExtendedResourceClaimStatus; s != nil {
		o.extended = s.ResourceClaimName
	}
	return o
}

// excludeDisruption is the label of nodes that do not count for whether the nodes of
// a zone can be reached, as for Kubernetes' node lifecycle controller.
const excludeDisruption = "node.kubernetes.io/exclude-disruption"

// trouble is why a node is not ready.
type trouble uint8

const (
	notReady    trouble = iota // its kubelet says so
	unreachable                // its kubelet says nothing
	troubles
)

// bears reports whether a pod tolerates for ever that its node has a taint that
// evicts. Kubernetes adds a toleration with an end to pods that have none.
func bears(p *v1.Pod, key string) bool {
	there := false
	for _, t := range p.Spec.Tolerations {
		if t.Effect != "" && t.Effect != v1.TaintEffectNoExecute || t.Key != key && t.Key != "" || t.Key == "" && t.Operator != v1.TolerationOpExists {
			continue
		}
		if t.TolerationSeconds != nil {
			return false
		}
		there = true
	}
	return there
}

// hasGPUs reports whether a pod that is known by what it takes alone has GPUs.
func (o *podObject) hasGPUs() bool { return o.amounts.GPUs > 0 || !o.ours && o.request.GPU > 0 }

// over reports whether the pod holds nothing any more.
func (o *podObject) over() bool { return o.phase == v1.PodSucceeded || o.phase == v1.PodFailed }

// ended reports whether it is over, or will never have a node.
func (o *podObject) ended() bool { return o.over() || o.deleting && o.node == "" }

// nodeObject is what the scheduler needs of a node.
type nodeObject struct {
	metav1.ObjectMeta
	node    core.Node
	gpus    []v1.ResourceName // the resources of its device plugins
	missing int
	unready time.Time // since when it is not ready, as the API says; zero when it is
	befell  trouble   // why it is not
	zone    string    // its region and zone
	apart   bool      // it says nothing about whether the others can be reached
	wrong   string    // why it cannot be used
	// drain is set while it is to be emptied; undrained says why not, though somebody
	// asks for it.
	drain     *translate.Drain
	undrained string
	unread    bool // nothing is known of it: it could not be read
}

func trimNode(n *v1.Node) *nodeObject {
	o := &nodeObject{ObjectMeta: trimMeta(&n.ObjectMeta)}
	var err error
	if o.node, o.missing, err = translate.Node(n); err != nil {
		o.wrong = err.Error()
	}
	o.gpus = translate.NodeGPUs(n)
	if o.drain, err = translate.DrainOf(n); err != nil {
		o.undrained = err.Error()
	}
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == v1.NodeReady && c.Status != v1.ConditionTrue {
			o.unready = c.LastTransitionTime.Time
			if o.unready.IsZero() {
				o.unready = time.Unix(0, 0)
			}
			if c.Status == v1.ConditionUnknown {
				o.befell = unreachable
			}
		}
	}
	o.zone = n.Labels[v1.LabelTopologyRegion] + "\x00" + n.Labels[v1.LabelTopologyZone]
	_, o.apart = n.Labels[excludeDisruption]
	return o
}

// ref names the PodGroup for an act.
func (o *podGroupObject) ref() act.Pod {
	return act.Pod{Namespace: o.Namespace, Name: o.Name, UID: o.UID}
}

// podGroupObject is what the scheduler needs of a native PodGroup.
type podGroupObject struct {
	metav1.ObjectMeta
	created time.Time
	// min is the gang's least pods, 0 when it is no gang.
	min        int
	attributes translate.Attributes
	wrong      string
	// required is the node label of the topology level that it must not leave.
	required string
	// whole says that its pods are disrupted together.
	whole    bool
	priority *int32 // of its class, nil without one
	class    string
	never    bool // its preemptionPolicy is Never
	// scheduled is whether its condition says that it was scheduled once.
	scheduled    bool
	deviceClaims []devices.ClaimRef
	pool         translate.Pool
	said         string // what its labels and annotations say that counts while a pod has a place
}

func trimPodGroup(g *schedulingv1beta1.PodGroup) *podGroupObject {
	o := &podGroupObject{
		ObjectMeta: trimMeta(&g.ObjectMeta),
		created:    g.CreationTimestamp.Time,
		whole:      g.Spec.DisruptionMode != nil && g.Spec.DisruptionMode.All != nil, deviceClaims: devices.GroupClaims(g),
	}
	// The API server writes a priority into groups that name no class: that of
	// their pods counts then.
	if g.Spec.PriorityClassName != "" {
		o.priority, o.class = g.Spec.Priority, g.Spec.PriorityClassName
	}
	o.never = g.Spec.PreemptionPolicy != nil && *g.Spec.PreemptionPolicy == schedulingv1beta1.PreemptNever
	if gang := g.Spec.SchedulingPolicy.Gang; gang != nil {
		o.min = int(gang.MinCount)
	}
	if c := g.Spec.SchedulingConstraints; c != nil && len(c.Topology) > 0 {
		o.required = c.Topology[0].Key
	}
	o.read(g)
	for i := range g.Status.Conditions {
		if c := &g.Status.Conditions[i]; c.Type == schedulingv1beta1.PodGroupInitiallyScheduled {
			o.scheduled = c.Status == metav1.ConditionTrue
		}
	}
	return o
}

// read takes over what the labels and annotations of the PodGroup say.
func (o *podGroupObject) read(g *schedulingv1beta1.PodGroup) {
	o.attributes, o.wrong = translate.Attributes{}, ""
	if err := o.attributes.Read(g); err != nil {
		o.wrong = err.Error()
	}
	o.pool, o.said = translate.PodGroupPool(g, o.attributes.Models), translate.SaidBy(g).String()
}

// namespaceObject is what the scheduler needs of a namespace.
type namespaceObject struct {
	metav1.ObjectMeta
	labels map[string]string
}

func trimNamespace(n *v1.Namespace) *namespaceObject {
	return &namespaceObject{ObjectMeta: trimMeta(&n.ObjectMeta), labels: n.Labels}
}

// timeOf is a time as the engine counts it. Objects may say any, or none: what is
// outside the engine's bounds is the nearest within, and never 0, which is unknown.
func timeOf(t time.Time) core.Time {
	switch s := t.Unix(); {
	case s < 1:
		return 1
	case s >= int64(core.MaxTime/core.Second):
		return core.MaxTime
	}
	return core.Time(t.UnixNano())
}

// trimMeta keeps what names an object.
func trimMeta(o *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion}
}

// key is how an object is found in its table.
func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func keyOf[T metav1.Object](o T) types.NamespacedName { return key(o.GetNamespace(), o.GetName()) }

func nameOf[T metav1.Object](o T) string { return o.GetName() }

// refill makes a table hold the objects of a list, and no others.
func refill[K comparable, T any](table map[K]T, list []T, key func(T) K) {
	clear(table)
	for _, o := range list {
		table[key(o)] = o
	}
}

// compare has all objects of a list seen, and gone what else the table has.
func compare[K comparable, V, T any](m *mirror, table map[K]V, list []T, key func(T) K, seen func(T), gone func(K)) {
	there := make(map[K]bool, len(list))
	for _, o := range list {
		there[key(o)] = true
		if !m.takeIn(o, func() { seen(o) }) {
			m.reduce(o)
		}
	}
	for k := range table {
		if !there[k] {
			m.takeIn(k, func() { gone(k) })
		}
	}
}
