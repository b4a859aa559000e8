package devices

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/kube/selector"
	"github.com/muster-sched/muster/kube/translate"
)

// What a pod needs of a node because of its devices.

// State is the state of a pod when another pod is resolved with which it may share a
// claim.
type State struct {
	UID  types.UID
	Name string
	Job  translate.Group
	// Placed is set if it has a node, or one was chosen for it.
	Placed bool
	// Stuck is set if it waits, is not known to the engine, and cannot be placed.
	Stuck bool
}

// Pod is a pod as it is when it is resolved.
type Pod struct {
	State
	Namespace string
	// Node is where it is placed; NodeMemory is how much the GPUs there have, in MiB, 0
	// when it is not known.
	Node       string
	NodeMemory int64
	// Request is what it asks for, with the job's attributes of GPUs; Inherits says that
	// the job has such attributes.
	Request  core.Request
	Inherits bool
	Resource v1.ResourceName // by which it asks for GPUs, empty for none
	Memory   int64           // MiB of a GPU for which it asks, 0 for none
	Held     core.Milli      // how much of a GPU it has by its spec and status
	Claims   []ClaimRef
	// PodGroup is that of its job, nil for none. Together says that its job starts
	// whole.
	PodGroup *PodGroup
	Together bool
}

// PodGroup is what is kept of the PodGroup of a pod that is resolved.
type PodGroup struct {
	Name   string
	UID    types.UID
	Claims []ClaimRef
}

// Needs is what a pod needs of a node, claims and devices included.
type Needs struct {
	Request core.Request
	// Reason and Detail say why it cannot be placed, "" when it can.
	Reason, Detail string
	// Together is set if its gang must share its node, because they share devices.
	Together bool
	claims   []claimNeed
}

// claimNeed is what to do about a claim when the pod is bound.
type claimNeed struct {
	claim    *claim
	carries  bool // its devices are the pod's
	consumer resourceapi.ResourceClaimConsumerReference
}

// resolution is how far a pod is resolved.
type resolution struct {
	*Index
	pod  *Pod
	find func(types.UID) (State, bool)
	out  *Needs
	// gpus and nics are how many devices the claims ask for that the pod carries.
	gpus, nics int
	inquiry    *inquiry
	singles
}

// stop records why the pod cannot be placed. What its author must change takes precedence
// over what may resolve by itself; otherwise the first reason counts.
func (r *resolution) stop(reason, format string, args ...any) {
	if r.out.Reason == "" || reason == ReasonMisconfigured {
		r.out.Reason, r.out.Detail = reason, fmt.Sprintf(format, args...)
	}
}

// Resolve returns what a pod needs with its devices; nil if it is what it asks for, and
// nothing else. find returns the state of another pod, false when it is gone.
//
// The first pod that is resolved with a claim carries the claim's devices: for the engine
// they belong to this pod.
func (x *Index) Resolve(p *Pod, find func(types.UID) (State, bool)) (*Needs, Change) {
	a := &inquiry{questions: map[*question]bool{}}
	n := x.resolve(p, find, a)
	x.settle(p, a)
	return n, x.changes.take()
}

func (x *Index) resolve(p *Pod, find func(types.UID) (State, bool), a *inquiry) *Needs {
	// 1. Without claims, only the memory or the kind of its GPUs says more than the pod does.
	if p.Memory > 0 {
		return x.byMemory(p)
	}
	if len(p.Claims) == 0 {
		if p.Inherits || p.Request.GPU > 0 && (x.any || x.plugins.others(p.Resource)) || x.plugins.wholeOnly(&p.Request, p.Resource) {
			return x.byResource(p)
		}
		return nil
	}

	// 2. What its claims need, one by one. Then their sum must be possible on one node.
	r := &resolution{Index: x, pod: p, find: find, out: &Needs{Request: withOwnSelector(p.Request)}, inquiry: a}
	if !x.served {
		r.stop(ReasonMisconfigured, "the pod has resource claims, but this cluster does not serve %s", resourceapi.SchemeGroupVersion)
		return r.out
	}
	for i := range p.Claims {
		r.add(&p.Claims[i])
	}
	r.addNICs()
	switch {
	case r.gpus > 0 && p.Request.GPU > 0:
		r.stop(ReasonMisconfigured, "GPUs are requested by claims and by a resource or an annotation: expected one of them")
	case r.gpus > cluster.MaxGPUs:
		r.stop(ReasonMisconfigured, "%d GPUs are requested, expected at most %d per pod", r.gpus, cluster.MaxGPUs)
	case r.nics > r.gpus && !p.Placed:
		r.stop(ReasonMisconfigured, "%d network devices and %d GPUs are requested: expected at most one network device per GPU", r.nics, r.gpus)
	}

	// 3. For the engine, devices of claims are a number of GPUs, and labels of the node.
	if delete(x.stuck, p.UID); r.out.Reason != "" {
		x.stuck[p.UID] = true
	}
	if r.gpus > 0 {
		r.out.Request.GPU = core.Milli(r.gpus) * core.WholeGPU
	}
	if r.out.Request.FromSets() > r.gpus {
		r.out.Request.From = nil // it has fewer than its claims ask for now
	}
	if r.nics > 0 {
		r.require(core.Requirement{Key: nicsLabel, Op: cluster.In, Values: []string{"paired"}})
	}
	return r.out
}

// require adds to what the labels of the node must be.
func (r *resolution) require(list ...core.Requirement) {
	r.out.Request.Selector = append(r.out.Request.Selector, list...)
}

// add adds what a claim needs to which the pod refers.
func (r *resolution) add(ref *ClaimRef) {
	p := r.pod
	if ref.None {
		return
	}
	c := r.claims[types.NamespacedName{Namespace: p.Namespace, Name: ref.Claim}]
	if ref.Claim == "" || c == nil || c.object == nil || c.object.deleting {
		r.stop(ReasonClaimPending, "resource claim %s does not exist yet", cmp.Or(ref.Claim, ref.Name))
		return
	}
	need := claimNeed{claim: c, consumer: resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID}}
	if g := p.PodGroup; g != nil && slices.ContainsFunc(g.Claims, func(o ClaimRef) bool {
		return o.Name == ref.Name && o.Source == ref.Source && o.Template == ref.Template
	}) {
		need.consumer = resourceapi.ResourceClaimConsumerReference{APIGroup: schedulingv1beta1.GroupName, Resource: "podgroups", Name: g.Name, UID: g.UID}
	} else if ref.Template && c.object.owner != p.UID {
		r.stop(ReasonClaimPending, "resource claim %s belongs to another pod", ref.Claim)
		return
	}
	r.addClaim(&need)
	r.out.claims = append(r.out.claims, need)
}

// addClaim adds what a claim needs to what its pod needs.
func (r *resolution) addClaim(need *claimNeed) {
	c, o, p := need.claim, need.claim.object, r.pod
	if o.wrong != "" && !o.allocated {
		r.stop(ReasonMisconfigured, "resource claim %s: %s", o.Name, o.wrong)
		return
	}

	// 1. A pod that is placed has the devices of the claims that it carries.
	carrier, carried := r.carrier(c)
	if p.Placed {
		if need.carries = carried && carrier.UID == p.UID; !need.carries {
			return
		}
		if o.spec != nil {
			// The labels that it was placed by are still asked for; how many devices it
			// has, the claim says.
			past := &resolution{Index: r.Index, pod: p, out: &Needs{Request: r.out.Request}, inquiry: r.inquiry}
			past.addRequests(o)
			past.addNICs()
			r.out.Request = past.out.Request
		}
		r.gpus += len(r.gpusOf(c, p.Node))
		return
	}

	// 2. The pod goes where the devices of an allocated claim are, if a pod uses them. If none
	// does, they are left over from a failed start or from a gang that left: the pod would be
	// kept on their node although another may be free. They are released, and it waits for that.
	if o.allocated {
		switch other, live := r.inUse(c, need.consumer.UID); {
		case live:
		case other != "":
			r.stop(ReasonClaimPending, "resource claim %s is still reserved for %s", o.Name, other)
			return
		default:
			r.changes.release = append(r.changes.release, translate.ClaimWrite{
				Namespace: o.Namespace, Name: o.Name, UID: o.UID, Consumer: need.consumer, Last: true,
			})
			r.stop(ReasonClaimPending, "the devices of resource claim %s are being released", o.Name)
			return
		}
		if o.node != nil {
			if err := translate.InNodes(o.node, &r.out.Request); err != nil {
				r.stop(ReasonMisconfigured, "resource claim %s: %v", o.Name, err)
			}
		}
		return
	}

	// 3. Of a claim without devices one pod carries the devices, and the engine chooses them
	// with its node. The others of its gang go where it is; other pods wait. A carrier that is
	// stuck gives the claim up: the pods that could start would wait for it.
	switch {
	case carried && carrier.UID != p.UID && carrier.Stuck:
		r.changes.stale[carrier.UID] = true
		fallthrough
	case !carried || carrier.UID == p.UID:
		c.carrier, need.carries = p.UID, true
	case carrier.Job == p.Job && p.Together:
		r.out.Together = true
		return
	default:
		r.stop(ReasonClaimPending, "the devices of resource claim %s must first be allocated to pod %s", o.Name, carrier.Name)
		return
	}
	r.addRequests(o)
}

// inUse reports whether a placed pod uses a claim. If none does, it names the owner, other
// than the pod and its own consumer, the claim is reserved; "" for no one.
func (r *resolution) inUse(c *claim, consumer types.UID) (other string, live bool) {
	placed := func(uid types.UID) bool {
		s, there := r.find(uid)
		return there && uid != r.pod.UID && s.Placed
	}
	for uid := range c.users {
		if placed(uid) {
			return "", true
		}
	}
	for _, by := range c.object.consumers {
		if placed(by.UID) {
			return "", true
		}
		if by.UID != r.pod.UID && by.UID != consumer {
			other = by.Resource + " " + by.Name
		}
	}
	return other, false
}

// carrier returns the pod to which the devices of a claim are counted, false when there
// is none: of an allocated claim one for which it is reserved, or that uses it, and is
// placed.
func (r *resolution) carrier(c *claim) (State, bool) {
	if c.carrier != "" {
		if s, there := r.find(c.carrier); there {
			return s, true
		}
	}
	c.carrier = ""
	if c.object == nil || !c.object.allocated {
		return State{}, false
	}
	for _, by := range c.object.consumers {
		if s, there := r.find(by.UID); there && s.Placed && c.users[by.UID] {
			c.carrier = by.UID
			return s, true
		}
	}
	var first *State
	for uid := range c.users {
		s, there := r.find(uid)
		if there && s.Placed && (first == nil || cmp.Or(cmp.Compare(len(s.Name), len(first.Name)), cmp.Compare(s.Name, first.Name), cmp.Compare(s.UID, first.UID)) < 0) {
			first = &s
		}
	}
	if first == nil {
		return State{}, false
	}
	c.carrier = first.UID
	return *first, true
}

// span is the devices of a request among those of the pod.
type span struct{ gpus, nics, firstGPU, firstNIC int }

// addRequests adds what a claim asks for: the requests one by one, then the constraints
// over them.
func (r *resolution) addRequests(o *Claim) {
	fail := func(reason, format string, args ...any) {
		r.stop(reason, "resource claim "+o.Name+": "+format, args...)
	}
	spans := make([]span, len(o.spec.Requests))
	for i := range o.spec.Requests {
		var ok bool
		if spans[i], ok = r.addRequest(&o.spec.Requests[i], fail); !ok {
			return
		}
	}
	for i := range o.spec.Constraints {
		if !r.addConstraint(&o.spec.Constraints[i], o.spec.Requests, spans, fail) {
			return
		}
	}
}

// alternatives is what the alternatives of a request ask of nodes.
type alternatives struct {
	any   [][]core.Requirement
	of    []*question // those that are GPUs
	count int
	nic   bool
}

// addRequest adds a request; false if the pod cannot be placed anyway.
func (r *resolution) addRequest(req *translate.ClaimRequest, fail func(reason, format string, args ...any)) (span, bool) {
	// 1. Each alternative asks all nodes whether their devices match the class and the
	// selectors. One that no node has is skipped.
	var a alternatives
	for j := range req.Any {
		need := &req.Any[j]
		q := r.matching(need, fail)
		if q == nil {
			return span{}, false
		}
		if q.gpus == 0 && q.nics == 0 && len(req.Any) > 1 {
			continue
		}
		if !r.addAlternative(&a, req, need, q, fail) {
			return span{}, false
		}
	}

	// 2. Where an alternative matches single GPUs of a node, the engine picks one that any of them matches. Of several
	// GPUs, one could match this alternative and one that.
	var set *question
	switch single := slices.ContainsFunc(a.of, func(q *question) bool { return q.single }); {
	case len(a.of) == 1 && len(a.any) == 1:
		set = a.of[0]
	case single && a.count == 1 && len(a.of) == len(a.any):
		if set = r.either(a.of); set == nil || !r.await(set, true, req.Name, fail) {
			return span{}, false
		}
		a.any = [][]core.Requirement{{inSet(set)}}
	case single:
		fail(ReasonMisconfigured, "request %s: its selectors match some GPUs of a node but not all; with several alternatives, expected a count of 1", req.Name)
		return span{}, false
	}

	// 3. The node must have the label of an alternative.
	switch len(a.any) {
	case 0:
		fail(ReasonClaimPending, "request %s: no node publishes such a device", req.Name)
		return span{}, false
	case 1:
		r.require(a.any[0]...)
	default:
		translate.AddAlternatives(&r.out.Request, a.any)
	}
	s := span{firstGPU: r.gpus, firstNIC: r.nics}
	if a.nic {
		s.nics = a.count
		r.nicRequests++
	} else {
		s.gpus = a.count
		r.gpuRequests++
		if r.lastGPUs = set; set != nil && set.single {
			r.from(set, a.count)
		}
	}
	r.gpus, r.nics = r.gpus+s.gpus, r.nics+s.nics
	return s, true
}

// addAlternative adds what an alternative of a request asks of nodes; false if the pod cannot be placed anyway.
func (r *resolution) addAlternative(a *alternatives, req *translate.ClaimRequest, need *translate.DeviceNeed, q *question, fail func(reason, format string, args ...any)) bool {
	refuse := func(format string, args ...any) bool {
		fail(ReasonMisconfigured, "request "+need.Name+": "+format, args...)
		return false
	}
	switch {
	case q.gpus == 0 && q.nics == 0 && q.partitions > 0:
		return refuse("its selectors match partitions of GPUs (MIG), which Muster does not allocate; expected whole GPUs, or a resource of a device plugin in place of the claim, such as nvidia.com/mig-1g.5gb")
	case q.gpus == 0 && q.nics == 0:
		fail(ReasonClaimPending, "request %s: no node publishes such a device", need.Name)
		return false
	case q.gpus > 0 && q.nics > 0:
		return refuse("its selectors match both GPUs and network devices; expected one kind")
	case q.nics > 0 && need.Count == 0:
		return refuse("allocation mode All is only supported for GPUs; expected a count of network devices")
	case q.nics > 0 && q.allNICs < q.nics && len(req.Any) > 1:
		return refuse("its selectors match some network devices of a node but not all; expected one alternative")
	case q.nics > 0:
		a.nic, a.count = true, need.Count
		values := []string{"all"}
		if q.allNICs < q.nics {
			r.nicsOfSome = append(r.nicsOfSome, nicsOfSome{req.Name, q, a.count})
			values = append(values, "some")
		}
		a.any = append(a.any, []core.Requirement{{Key: q.label + "-nics", Op: cluster.In, Values: values}})
		return true
	}

	// Allocation mode All becomes a number if all nodes have the same number of such
	// GPUs. With nodes of 4 and nodes of 8 it is refused: the engine needs one number.
	with := []core.Requirement{inSet(q)}
	a.count = need.Count
	if need.Count == 0 {
		if len(q.sizes) > 1 {
			return refuse("nodes have %s such GPUs, so allocation mode All is ambiguous; expected a count", sizes(q.sizes))
		}
		for n := range q.sizes {
			a.count = n
		}
		label := gpusLabel
		if q.single {
			label = q.label + countSuffix
		}
		with = append(with, core.Requirement{Key: label, Op: cluster.In, Values: []string{strconv.Itoa(a.count)}})
	}
	a.any, a.of = append(a.any, with), append(a.of, q)
	return true
}

// matching asks all nodes whether their devices match the class and the selectors of a
// request; nil if that cannot be asked.
func (r *resolution) matching(need *translate.DeviceNeed, fail func(reason, format string, args ...any)) *question {
	class := r.classes[need.Class]
	if class == nil {
		fail(ReasonClaimPending, "request %s: device class %s does not exist", need.Name, need.Class)
		return nil
	}
	if class.wrong != "" {
		fail(ReasonMisconfigured, "device class %s: %s", class.Name, class.wrong)
		return nil
	}
	if n := lengthOf(need.Selectors); n > MaxSelectors {
		fail(ReasonTooComplex, "request %s: its selectors have %d bytes: expected at most %d", need.Name, n, MaxSelectors)
		return nil
	}
	all, own := selectorsOf(class, need.Selectors), len(need.Selectors) > 0
	q := r.ask(selectorKey(all), own, func(q *question) { q.selectors = all })
	if q == nil || !r.await(q, own, need.Name, fail) {
		return nil
	}
	return q
}

func lengthOf(list []string) (n int) {
	for _, s := range list {
		n += len(s)
	}
	return n
}

// ask returns the question of a key, nil if the namespace of the pod has no room for it; of a pod that has a place it always has.
// own says that the namespace pays. A new question is filled in.
func (r *resolution) ask(key string, own bool, fill func(*question)) *question {
	q := r.questions[key]
	if own && !r.pod.Placed && (r.inquiry.refused || !r.mayAsk(r.pod.Namespace, q, r.inquiry.questions)) {
		r.inquiry.refused = true
		r.stop(ReasonTooComplex, "the pods of the namespace have %d different selectors and constraints in their resource claims, or had within the last %d minutes: it waits until some of them are no longer used", MaxQuestions, linger/(60*core.Second))
		return nil
	}
	if q == nil {
		q = newQuestion(key)
		q.namespace = r.pod.Namespace
		fill(q)
		r.open(q)
	}
	r.inquiry.questions[q] = r.inquiry.questions[q] || own
	return q
}

// await reports whether nodes have answered a question; if not, it says why a request cannot be placed. For a pod that has a
// place, the answer of its node is enough.
func (r *resolution) await(q *question, own bool, request string, fail func(reason, format string, args ...any)) bool {
	if !r.answered(q, own) {
		if !r.pod.Placed {
			fail(ReasonClaimPending, "request %s: it is being compared with the devices of the nodes", request)
			return false
		}
		if p := r.published[r.pod.Node]; p != nil && p.inventory != nil {
			r.Index.askNode(q, r.pod.Node, p)
		}
	}
	if q.wrong != "" {
		fail(q.reason, "request %s: %s", request, q.wrong)
		return false
	}
	return true
}

// addConstraint adds a constraint over the devices of some requests; false when no node
// can meet it. The engine chooses any devices of a node, so the constraint must hold for
// whichever it chooses: a node has the label if it does. A GPU and a network device at
// the same place among the pod's are the nearest to each other.
func (r *resolution) addConstraint(k *translate.Constraint, requests []translate.ClaimRequest, spans []span, fail func(reason, format string, args ...any)) bool {
	sum := span{firstGPU: -1, firstNIC: -1}
	for j, s := range spans {
		if !k.Concerns(&requests[j]) {
			continue
		}
		if s.gpus > 0 && sum.firstGPU < 0 {
			sum.firstGPU = s.firstGPU
		}
		if s.nics > 0 && sum.firstNIC < 0 {
			sum.firstNIC = s.firstNIC
		}
		sum.gpus, sum.nics = sum.gpus+s.gpus, sum.nics+s.nics
	}
	aligned := sum.gpus == 1 && sum.nics == 1 && sum.firstGPU == sum.firstNIC
	key := fmt.Sprintf("constraint\x00%s\x00%d\x00%d\x00%t", k.Key(), sum.gpus, sum.nics, aligned)
	q := r.ask(key, true, func(q *question) {
		q.answers = func(v *translate.Inventory) answer {
			if v.Count() > 0 && k.Holds(v, sum.gpus, sum.nics, aligned) {
				return answer{gpus: selector.All}
			}
			return answer{}
		}
	})
	if q == nil || !r.await(q, true, k.Attribute, fail) {
		return false
	}
	if q.all == 0 {
		fail(ReasonMisconfigured, "the constraint on %s is not supported: on no node does it hold for all devices that can be chosen", k.Attribute)
		return false
	}
	r.require(core.Requirement{Key: q.label, Op: cluster.In, Values: []string{"all"}})
	return true
}

func sizes(of map[int]int) string {
	var out []string
	for _, n := range slices.Sorted(maps.Keys(of)) {
		out = append(out, strconv.Itoa(n))
	}
	return strings.Join(out, " or ")
}
