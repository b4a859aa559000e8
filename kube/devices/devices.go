// Package devices determines which GPUs and network devices pods need, and which of them
// nodes offer: through dynamic resource allocation (DRA), as the resources of device
// plugins, and by the memory of a GPU.
//
// For the engine, GPUs that DRA drivers publish in ResourceSlices are like those of a
// device plugin. A device that is tainted, or that belongs to a claim without a known
// pod, is unhealthy. The requests of claims become a number of GPUs and requirements on
// pseudo labels: a node has the label of a selector with the value "all" where the
// selector holds for all of its GPUs, and "some" where it holds for some. A selector that holds for
// single GPUs is a device set of the nodes, which the engine knows by the label. The devices that the engine chooses are written
// into the claims before the pod is bound. Which selectors a namespace may have compared with all devices has bounds (asking.go).
//
// [Index] observes slices, classes, taint rules, claims and nodes, each as it is now, and
// which pods refer to which claims. It answers what a pod needs ([Index.Resolve]), what a
// node has ([Index.Describe], [Index.Unusable]), and how to distribute the chosen devices
// to claims ([Index.Grant]). [Index.Work] goes on with what takes longer than a pass may. All of them return what they changed ([Change]). The index
// knows nothing about jobs or the engine, and does no I/O.
package devices

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/kube/fair"
	"github.com/muster-sched/muster/kube/translate"
)

// Reasons for which a pod cannot be placed.
const (
	// ReasonClaimPending: a claim of the pod does not exist, or is not free.
	ReasonClaimPending = "ResourceClaimPending"
	// ReasonMisconfigured: its author must change something.
	ReasonMisconfigured = "Misconfigured"
	// ReasonTooComplex: its selectors cost too much, or its namespace has too many.
	ReasonTooComplex = "TooComplex"
)

// Change is what an observation or a question changed. All lists are in ascending order.
type Change struct {
	// Pods are those whose needs may have changed: those that wait must be resolved
	// again.
	Pods []types.UID
	// Stale lists pods whose needs are no longer valid, because another pod now carries
	// the devices that they share. They are resolved when they are processed next.
	Stale []types.UID
	// Nodes lists those for which the answer of Describe or Unusable changed.
	Nodes []string
	// Rebuild is set if what was resolved for pods without claims is no longer valid
	// either.
	Rebuild bool
	// Release lists the claims whose devices must be released.
	Release []translate.ClaimWrite
	// Warnings says which nodes cannot be used, and why.
	Warnings []Warning
}

// Warning says why the devices of a node cannot be used.
type Warning struct{ Node, Why string }

// Index is what is known about devices. It is not safe for concurrent use.
type Index struct {
	served    bool
	claims    map[types.NamespacedName]*claim
	classes   map[string]*Class
	resources map[v1.ResourceName]*Class // the classes that provide them
	rules     map[string]*translate.TaintRule
	published map[string]*published // by node
	pools     map[poolID]string     // their nodes
	held      map[translate.DeviceID]*claim
	// inFlight has the claimed devices of pods that were deleted while they were being
	// bound.
	inFlight map[types.UID][]translate.DeviceID
	// any is set if there was a node with GPUs published through DRA: pods that request
	// GPUs as the resource are kept off such nodes.
	any bool
	// stuck has the pods that wait for devices.
	stuck map[types.UID]bool

	inquiries
	plugins plugins
	changes changes
}

// New returns an empty index.
func New() *Index {
	x := &Index{
		claims: map[types.NamespacedName]*claim{}, classes: map[string]*Class{}, rules: map[string]*translate.TaintRule{},
		published: map[string]*published{}, pools: map[poolID]string{}, held: map[translate.DeviceID]*claim{},
		inFlight: map[types.UID][]translate.DeviceID{}, stuck: map[types.UID]bool{},
		inquiries: newInquiries(), plugins: newPlugins(), changes: newChanges(),
	}
	x.allowance = fair.NewAllowance(MaxQuestions, linger, x.unasked)
	return x
}

// Serve records that the cluster serves DRA. Before that, pods with claims wait.
func (x *Index) Serve() { x.served = true }

// Claim returns a claim as it was observed last, nil if there is none.
func (x *Index) Claim(namespace, name string) *Claim {
	if c := x.claims[types.NamespacedName{Namespace: namespace, Name: name}]; c != nil {
		return c.object
	}
	return nil
}

// Class returns a class as it was observed last, nil if there is none.
func (x *Index) Class(name string) *Class { return x.classes[name] }

// Slice returns a slice of a node as it was observed last, nil if there is none.
func (x *Index) Slice(name string) *translate.Slice {
	for _, p := range x.published {
		if s := p.slices[name]; s != nil {
			return s
		}
	}
	return nil
}

// claim is a ResourceClaim, or the name of one to which pods refer.
type claim struct {
	object *Claim // nil while there is none
	users  map[types.UID]bool
	// carrier is the pod for which the engine counts the devices, "" for none; the others
	// that share the claim go to its node.
	carrier types.UID
	// granted is what is being written into it.
	granted *allocation
}

func (x *Index) claimOf(k types.NamespacedName) *claim {
	c := x.claims[k]
	if c == nil {
		c = &claim{users: map[types.UID]bool{}}
		x.claims[k] = c
	}
	return c
}

// ObserveClaim records the present state of a claim. It ignores an older version than the
// known one: what this instance writes is observed before the watch shows it.
func (x *Index) ObserveClaim(o *Claim) Change {
	x.observeClaim(o)
	return x.changes.take()
}

func (x *Index) observeClaim(o *Claim) {
	c := x.claimOf(types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
	if c.object != nil && c.object.UID == o.UID && o.version < c.object.version {
		return
	}
	x.hold(c, o)
	x.changes.users(c)
}

// ObserveWritten records a claim as the API returned it after a change. A claim that is
// not known was deleted meanwhile.
func (x *Index) ObserveWritten(o *Claim) Change {
	if old := x.Claim(o.Namespace, o.Name); old == nil || old.UID != o.UID {
		return Change{}
	}
	return x.ObserveClaim(o)
}

// ForgetClaim records that a claim was deleted.
func (x *Index) ForgetClaim(o *Claim) Change {
	x.forgetClaim(types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
	return x.changes.take()
}

func (x *Index) forgetClaim(k types.NamespacedName) {
	c := x.claims[k]
	if c == nil {
		return
	}
	x.hold(c, nil)
	x.changes.users(c)
	if len(c.users) == 0 {
		delete(x.claims, k)
	}
}

// ReplaceClaims replaces all known claims.
func (x *Index) ReplaceClaims(list []*Claim) Change {
	there := map[types.NamespacedName]bool{}
	for _, o := range list {
		there[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = true
		x.observeClaim(o)
	}
	for k := range x.claims {
		if !there[k] {
			x.forgetClaim(k)
		}
	}
	return x.changes.take()
}

// hold notes which devices a claim has now.
func (x *Index) hold(c *claim, o *Claim) {
	moved := func(list []translate.DeviceID) {
		for _, d := range list {
			x.changes.node(x.pools[poolID{d.Driver, d.Pool}])
		}
	}
	if c.object != nil {
		for _, d := range c.object.devices {
			if x.held[d] == c {
				delete(x.held, d)
			}
		}
		moved(c.object.devices)
	}
	c.object = o
	if o == nil {
		c.granted = nil
		return
	}
	if o.allocated {
		c.granted = nil
	}
	for _, d := range o.devices {
		x.held[d] = c
	}
	moved(o.devices)
}

// Refer records that a pod refers to claims. Nothing changes for other pods.
func (x *Index) Refer(pod types.UID, namespace string, refs []ClaimRef) {
	for _, r := range refs {
		if r.Claim != "" {
			x.claimOf(types.NamespacedName{Namespace: namespace, Name: r.Claim}).users[pod] = true
		}
	}
}

// Unrefer records that a pod refers to claims no longer.
func (x *Index) Unrefer(pod types.UID, namespace string, refs []ClaimRef) Change {
	for _, r := range refs {
		k := types.NamespacedName{Namespace: namespace, Name: r.Claim}
		c := x.claims[k]
		if c == nil {
			continue
		}
		delete(c.users, pod)
		if c.carrier == pod {
			c.carrier = ""
		}
		x.changes.users(c)
		if c.object == nil && len(c.users) == 0 {
			delete(x.claims, k)
		}
	}
	return x.changes.take()
}

// Review makes all pods that refer to the claims be resolved again.
func (x *Index) Review(namespace string, refs []ClaimRef) Change {
	for _, r := range refs {
		if c := x.claims[types.NamespacedName{Namespace: namespace, Name: r.Claim}]; c != nil {
			x.changes.users(c)
		}
	}
	return x.changes.take()
}

// ForgetPod records that a pod is gone, beside [Index.Unrefer].
func (x *Index) ForgetPod(pod types.UID, namespace string) {
	delete(x.plugins.pods, pod)
	delete(x.stuck, pod)
	x.use(pod, namespace, nil)
	x.allowance.Leave(namespace, pod)
}

// Again returns the pods to resolve again because of what was observed since the last
// call, and whether all pods that request GPUs as a resource must be.
func (x *Index) Again() (c Change, byResource bool) {
	for q := range x.moved {
		for uid := range q.users {
			if x.stuck[uid] {
				x.changes.pods[uid] = true
			}
		}
	}
	clear(x.moved)
	if x.plugins.memoryChanged() {
		for uid := range x.plugins.pods {
			x.changes.pods[uid] = true
		}
	}
	return x.changes.take(), x.plugins.kindsChanged()
}

// ObserveClass records the present state of a device class.
func (x *Index) ObserveClass(o *Class) Change {
	x.classes[o.Name] = o
	return x.classesChanged()
}

// ForgetClass records that a device class was deleted.
func (x *Index) ForgetClass(o *Class) Change {
	delete(x.classes, o.Name)
	return x.classesChanged()
}

// ReplaceClasses replaces all known device classes.
func (x *Index) ReplaceClasses(list []*Class) Change {
	clear(x.classes)
	for _, o := range list {
		x.classes[o.Name] = o
	}
	return x.classesChanged()
}

func (x *Index) classesChanged() Change {
	for _, c := range x.claims {
		x.changes.users(c)
	}
	resources := map[v1.ResourceName]*Class{}
	for _, o := range x.classes {
		if old := resources[o.resource]; o.resource != "" && (old == nil || old.created.Before(&o.created) ||
			old.created.Equal(&o.created) && o.Name < old.Name) {
			resources[o.resource] = o
		}
	}
	same := maps.EqualFunc(resources, x.resources, func(a, b *Class) bool {
		return a.Name == b.Name && slices.Equal(a.selectors, b.selectors)
	})
	x.resources = resources
	clear(x.byClass)
	for _, o := range x.classes {
		x.byClass[selectorKey(o.selectors)] = true
	}
	for _, q := range slices.Collect(maps.Values(x.questions)) {
		x.forget(q)
	}
	if x.any && !same {
		x.changes.rebuild = true // it changes all requests for the resource
	}
	return x.changes.take()
}

// changes collects a [Change].
type changes struct {
	pods, stale map[types.UID]bool
	nodes       map[string]bool
	rebuild     bool
	release     []translate.ClaimWrite
	warnings    []Warning
}

func newChanges() changes {
	return changes{pods: map[types.UID]bool{}, stale: map[types.UID]bool{}, nodes: map[string]bool{}}
}

func (c *changes) users(of *claim) { maps.Copy(c.pods, of.users) }

// node records that a node must be described again; "" means no node.
func (c *changes) node(name string) {
	if name != "" {
		c.nodes[name] = true
	}
}

// take returns what was collected, and resets it.
func (c *changes) take() Change {
	if len(c.pods)+len(c.stale)+len(c.nodes)+len(c.release)+len(c.warnings) == 0 && !c.rebuild {
		return Change{}
	}
	out := Change{
		Pods: slices.Sorted(maps.Keys(c.pods)), Stale: slices.Sorted(maps.Keys(c.stale)), Nodes: slices.Sorted(maps.Keys(c.nodes)),
		Rebuild: c.rebuild, Release: c.release, Warnings: c.warnings,
	}
	*c = newChanges()
	return out
}
