package kube

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/kube/translate"
)

// Dynamic resource allocation (DRA). GPUs that drivers publish in ResourceSlices
// become the engine's like those of a device plugin; a device that is tainted, or
// that a claim has of which the engine knows no pod, is unhealthy to it. What
// claims ask for becomes a number of GPUs and requirements on pseudo labels: a
// node has the label of a selector with the value "all" where the selector holds
// for all of its GPUs. The devices that the engine chooses are written into the
// claims before the pod is bound (dra_grant.go, claims.go).

// ReasonClaimPending says that a claim of a pod is not there, or not free.
const ReasonClaimPending = "ResourceClaimPending"

// Pseudo labels of nodes.
const (
	// gpusLabel says how many GPUs the node publishes by DRA.
	gpusLabel = "dra.muster.sh/gpus"
	// nicsLabel says, as "paired", that each of them has a NIC of its own.
	nicsLabel = "dra.muster.sh/nics"
	// matchLabel and the number of a question say what its answer is.
	matchLabel = "dra.muster.sh/match-"
)

// deviceClaimObject is what is kept of a ResourceClaim.
type deviceClaimObject struct {
	metav1.ObjectMeta
	version   uint64
	owner     types.UID // what it was made for, empty when users made it
	deleting  bool
	finalizer bool
	spec      *translate.DeviceClaim
	wrong     string
	allocated bool
	devices   []translate.DeviceID
	node      *v1.NodeSelector // where the devices are, nil for everywhere
	consumers []resourceapi.ResourceClaimConsumerReference
}

func trimDeviceClaim(c *resourceapi.ResourceClaim) *deviceClaimObject {
	o := &deviceClaimObject{
		ObjectMeta: trimMeta(&c.ObjectMeta), deleting: c.DeletionTimestamp != nil,
		finalizer: slices.Contains(c.Finalizers, resourceapi.Finalizer),
		consumers: c.Status.ReservedFor,
	}
	o.version, _ = strconv.ParseUint(c.ResourceVersion, 10, 64)
	if owner := metav1.GetControllerOfNoCopy(c); owner != nil {
		o.owner = owner.UID
	}
	var err error
	if o.spec, err = translate.DeviceClaimOf(&c.Spec); err != nil {
		o.wrong = err.Error()
	}
	if a := c.Status.Allocation; a != nil {
		o.allocated, o.devices, o.node = true, translate.AllocatedDevices(a), a.NodeSelector
	}
	return o
}

// deviceClassObject is what is kept of a DeviceClass.
type deviceClassObject struct {
	metav1.ObjectMeta
	selectors []string
	config    []resourceapi.DeviceClassConfiguration
	wrong     string
	// resource is the extended resource that its devices are; where several
	// classes have it, the last that was made has.
	resource v1.ResourceName
	created  metav1.Time
}

func trimDeviceClass(c *resourceapi.DeviceClass) *deviceClassObject {
	o := &deviceClassObject{
		ObjectMeta: trimMeta(&c.ObjectMeta), config: c.Spec.Config,
		resource: v1.ResourceName(ptr.Deref(c.Spec.ExtendedResourceName, "")), created: c.CreationTimestamp,
	}
	var err error
	if o.selectors, err = translate.Expressions(c.Spec.Selectors); err != nil {
		o.wrong = err.Error()
	}
	return o
}

// claimRef is how a pod, or a PodGroup, refers to a claim.
type claimRef struct {
	// name is what it is called in the pod; source the claim or the template.
	name, source string
	template     bool
	// claim is the name of the ResourceClaim, empty while it has not been made;
	// none says that none is needed.
	claim string
	none  bool
}

func podClaims(p *v1.Pod) []claimRef {
	var out []claimRef
	for i := range p.Spec.ResourceClaims {
		c := &p.Spec.ResourceClaims[i]
		r := claimRef{name: c.Name, source: ptr.Deref(c.ResourceClaimName, ""), claim: ptr.Deref(c.ResourceClaimName, "")}
		if c.ResourceClaimTemplateName != nil {
			r.source, r.template = *c.ResourceClaimTemplateName, true
			for _, s := range p.Status.ResourceClaimStatuses {
				if s.Name == c.Name {
					r.claim, r.none = ptr.Deref(s.ResourceClaimName, ""), s.ResourceClaimName == nil
				}
			}
		}
		out = append(out, r)
	}
	return out
}

func groupClaims(g *schedulingv1beta1.PodGroup) []claimRef {
	var out []claimRef
	for i := range g.Spec.ResourceClaims {
		c := &g.Spec.ResourceClaims[i]
		out = append(out, claimRef{
			name: c.Name, source: cmp.Or(ptr.Deref(c.ResourceClaimName, ""), ptr.Deref(c.ResourceClaimTemplateName, "")),
			template: c.ResourceClaimTemplateName != nil,
		})
	}
	return out
}

// claim is a ResourceClaim, or the name of one that pods wait for.
type claim struct {
	object *deviceClaimObject // nil while there is none
	users  map[types.UID]*pod
	// carrier is the pod to which the engine counts the devices; the others that
	// share the claim go where it is.
	carrier *pod
	// granted is what is being written into it.
	granted *resourceapi.AllocationResult
}

// question is what is asked of the devices of every node.
type question struct {
	label  string
	answer func(*translate.Inventory) answer
	// gpus and nics count the nodes where it holds for some or all; all those
	// where it holds for all GPUs, by how many they are.
	gpus, nics, all int
	sizes           map[int]int
}

type answer struct{ gpus, nics translate.Match }

// matches are the values of matchLabel.
var matches = [...]string{translate.MatchNone: "", translate.MatchSome: "some", translate.MatchAll: "all"}

// published is what DRA drivers say of a node.
type published struct {
	slices map[string]*translate.Slice
	// inventory is the last that was whole; stale says that its slices are being
	// replaced, or gone.
	inventory *translate.Inventory
	stale     bool
	answers   map[*question]answer
}

// poolID names a pool of devices.
type poolID struct{ driver, name string }

// draTables is what is known of devices, claims and classes.
type draTables struct {
	served    bool
	claims    map[types.NamespacedName]*claim
	classes   map[string]*deviceClassObject
	resources map[v1.ResourceName]*deviceClassObject // the classes that provide them
	rules     map[string]*translate.TaintRule
	nodes     map[string]*published
	pools     map[poolID]string // their nodes
	held      map[translate.DeviceID]*claim
	questions map[string]*question
	// changed says that devices are others than when pods were last looked at that
	// wait for some; stuck has those.
	changed bool
	stuck   map[*pod]bool
	// any says that there was a node with GPUs published by DRA: pods that ask for
	// GPUs by the resource are kept off such nodes.
	any bool
	// inFlight has the claimed devices of pods that went while they were being bound.
	inFlight map[types.UID][]translate.DeviceID
}

func newDRA() draTables {
	return draTables{
		claims: map[types.NamespacedName]*claim{}, classes: map[string]*deviceClassObject{}, rules: map[string]*translate.TaintRule{},
		nodes: map[string]*published{}, pools: map[poolID]string{}, held: map[translate.DeviceID]*claim{},
		questions: map[string]*question{}, inFlight: map[types.UID][]translate.DeviceID{}, stuck: map[*pod]bool{},
	}
}

// claimOf returns the claim of a name, known or not.
func (m *mirror) claimOf(k types.NamespacedName) *claim {
	c := m.dra.claims[k]
	if c == nil {
		c = &claim{users: map[types.UID]*pod{}}
		m.dra.claims[k] = c
	}
	return c
}

// deviceClaimSeen takes in a claim as it is now; what is older than what is known is
// passed over, for what is written is taken in at once.
func (m *mirror) deviceClaimSeen(o *deviceClaimObject) {
	k := key(o.Namespace, o.Name)
	c := m.claimOf(k)
	if c.object != nil && c.object.UID == o.UID && o.version < c.object.version {
		return
	}
	m.holds(c, o)
	m.claimChanged(c)
}

// claimWritten takes in a claim as the API returned it after a change.
func (m *mirror) claimWritten(o *deviceClaimObject) {
	if c := m.dra.claims[key(o.Namespace, o.Name)]; c != nil && c.object != nil && c.object.UID == o.UID {
		m.deviceClaimSeen(o)
	}
}

func (m *mirror) deviceClaimGone(k types.NamespacedName) {
	c := m.dra.claims[k]
	if c == nil {
		return
	}
	m.holds(c, nil)
	m.claimChanged(c)
	if len(c.users) == 0 {
		delete(m.dra.claims, k)
	}
}

func (m *mirror) deviceClaimsListed(list []*deviceClaimObject) {
	compare(m, m.dra.claims, list, keyOf, m.deviceClaimSeen, m.deviceClaimGone)
}

// holds notes which devices a claim has now.
func (m *mirror) holds(c *claim, o *deviceClaimObject) {
	dirty := func(list []translate.DeviceID) {
		for _, d := range list {
			m.nodeDirty(m.dra.pools[poolID{d.Driver, d.Pool}])
		}
	}
	if c.object != nil {
		for _, d := range c.object.devices {
			if m.dra.held[d] == c {
				delete(m.dra.held, d)
			}
		}
		dirty(c.object.devices)
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
		m.dra.held[d] = c
	}
	dirty(o.devices)
}

// claimChanged has the pods of a claim looked at again.
func (m *mirror) claimChanged(c *claim) {
	for _, p := range c.users {
		m.reconsider(p)
	}
}

// reconsider finds out anew what a waiting pod needs.
func (m *mirror) reconsider(p *pod) {
	if p.state != podWaiting || p.group == nil {
		return
	}
	p.needs = nil
	if m.engine != nil {
		m.resolve(p)
		m.refit(p)
	}
}

// recheck has pods looked at again that wait for claims, classes or devices.
func (m *mirror) recheck() {
	if !m.dra.changed {
		return
	}
	m.dra.changed = false
	stuck := m.dra.stuck
	m.dra.stuck = map[*pod]bool{}
	for p := range stuck {
		if p.needs != nil && p.needs.reason != "" && m.pods[p.object.UID] == p {
			m.reconsider(p)
		}
	}
}

func (m *mirror) deviceClassSeen(o *deviceClassObject) {
	m.dra.classes[o.Name] = o
	m.classesChanged()
}

func (m *mirror) deviceClassGone(name string) {
	delete(m.dra.classes, name)
	m.classesChanged()
}

func (m *mirror) deviceClassesListed(list []*deviceClassObject) {
	refill(m.dra.classes, list, nameOf)
	m.classesChanged()
}

func (m *mirror) classesChanged() {
	for _, c := range m.dra.claims {
		m.claimChanged(c)
	}
	resources := map[v1.ResourceName]*deviceClassObject{}
	for _, o := range m.dra.classes {
		if old := resources[o.resource]; o.resource != "" && (old == nil || old.created.Before(&o.created) ||
			old.created.Equal(&o.created) && o.Name < old.Name) {
			resources[o.resource] = o
		}
	}
	same := maps.EqualFunc(resources, m.dra.resources, func(a, b *deviceClassObject) bool {
		return a.Name == b.Name && slices.Equal(a.selectors, b.selectors)
	})
	m.dra.resources = resources
	if m.dra.any && !same && m.engine != nil {
		if err := m.rebuild(); err != nil { // all requests for the resource are others
			m.log.Error("cannot rebuild the engine", "error", err)
		}
	}
}

func (m *mirror) taintRuleSeen(o *translate.TaintRule) {
	old := m.dra.rules[o.Name]
	m.dra.rules[o.Name] = o
	m.tainted(old)
	m.tainted(o)
}

func (m *mirror) taintRuleGone(name string) {
	old := m.dra.rules[name]
	delete(m.dra.rules, name)
	m.tainted(old)
}

func (m *mirror) taintRulesListed(list []*translate.TaintRule) {
	compare(m, m.dra.rules, list, func(o *translate.TaintRule) string { return o.Name }, m.taintRuleSeen, m.taintRuleGone)
}

// tainted has the nodes looked at again that a rule may concern.
func (m *mirror) tainted(r *translate.TaintRule) {
	if r == nil {
		return
	}
	for pool, name := range m.dra.pools {
		if r.Concerns(pool.driver, pool.name) {
			m.nodeDirty(name)
		}
	}
}
