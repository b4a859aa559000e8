package kube

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/kube/translate"
)

// Dynamic resource allocation (DRA). GPUs that drivers publish in ResourceSlices
// become the engine's like those of a device plugin; a device that is tainted, or
// that a claim has of which the engine knows no pod, is unhealthy to it. What
// claims ask for becomes a number of GPUs and requirements on pseudo labels: a
// node has the label of a selector with the value "all" where the selector holds
// for all of its GPUs. The devices that the engine chooses are written into the
// claims before the pod is bound (claims.go).

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

// taintRule is what is kept of a DeviceTaintRule.
type taintRule struct {
	metav1.ObjectMeta
	driver, pool, device *string
	none                 bool // it taints nothing
}

func trimTaintRule(r *resourceapi.DeviceTaintRule) *taintRule {
	o := &taintRule{ObjectMeta: trimMeta(&r.ObjectMeta)}
	if s := r.Spec.DeviceSelector; s != nil {
		o.driver, o.pool, o.device = s.Driver, s.Pool, s.Device
	}
	effect := r.Spec.Taint.Effect
	o.none = r.Spec.DeviceSelector == nil ||
		effect != resourceapi.DeviceTaintEffectNoSchedule && effect != resourceapi.DeviceTaintEffectNoExecute
	return o
}

func (r *taintRule) taints(d translate.DeviceID) bool {
	is := func(want *string, name string) bool { return want == nil || *want == name }
	return !r.none && is(r.driver, d.Driver) && is(r.pool, d.Pool) && is(r.device, d.Name)
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
	rules     map[string]*taintRule
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
		claims: map[types.NamespacedName]*claim{}, classes: map[string]*deviceClassObject{}, rules: map[string]*taintRule{},
		nodes: map[string]*published{}, pools: map[poolID]string{}, held: map[translate.DeviceID]*claim{},
		questions: map[string]*question{}, inFlight: map[types.UID][]translate.DeviceID{}, stuck: map[*pod]bool{},
	}
}

// sliceSeen takes in a ResourceSlice as it is now.
func (m *mirror) sliceSeen(o *translate.Slice) {
	if o.Node == "" {
		return
	}
	p := m.dra.nodes[o.Node]
	if p == nil {
		p = &published{slices: map[string]*translate.Slice{}, answers: map[*question]answer{}}
		m.dra.nodes[o.Node] = p
	}
	p.slices[o.Name] = o
	m.dra.pools[poolID{o.Driver, o.Pool}] = o.Node
	m.inventory(o.Node, p)
}

func (m *mirror) sliceGone(o *translate.Slice) {
	p := m.dra.nodes[o.Node]
	if p == nil {
		return
	}
	delete(p.slices, o.Name)
	if n := m.nodes[o.Node]; len(p.slices) == 0 && (n == nil || n.gone) {
		m.forget(p)
		delete(m.dra.nodes, o.Node)
		return
	}
	m.inventory(o.Node, p)
}

func (m *mirror) slicesListed(list []*translate.Slice) {
	there := make(map[string]bool, len(list))
	for _, o := range list {
		there[o.Name] = true
		m.sliceSeen(o)
	}
	for _, p := range m.dra.nodes {
		for name, o := range p.slices {
			if !there[name] {
				m.sliceGone(o)
			}
		}
	}
}

// inventory reads the slices of a node anew. While some are missing, what was
// there stays, and nothing is placed on it.
func (m *mirror) inventory(name string, p *published) {
	list := make([]*translate.Slice, 0, len(p.slices))
	for _, s := range p.slices {
		list = append(list, s)
	}
	v := translate.InventoryOf(list)
	p.stale = !v.Complete || len(v.GPUs) == 0 && p.inventory != nil && len(p.inventory.GPUs) > 0
	if len(v.GPUs) > cluster.MaxGPUs {
		m.log.Warn("the GPUs of a node cannot be used", "node", name, "why", fmt.Sprintf("%d GPUs, at most %d can be used", len(v.GPUs), cluster.MaxGPUs))
		p.stale = true
	}
	if !p.stale || p.inventory == nil && len(v.GPUs) <= cluster.MaxGPUs {
		m.forget(p)
		p.inventory = v
		for _, q := range m.dra.questions {
			m.put(q, p)
		}
		m.dra.changed = true
	}
	m.nodeDirty(name)
	if len(v.GPUs) > 0 && !m.dra.any {
		m.dra.any = true
		if m.engine != nil {
			if err := m.rebuild(); err != nil {
				m.log.Error("the engine cannot be built anew", "error", err)
			}
		}
	}
}

func (m *mirror) nodeDirty(name string) {
	if n := m.nodes[name]; n != nil {
		m.dirtyNodes[name] = n
	}
}

// put asks a node a question.
func (m *mirror) put(q *question, p *published) {
	a := q.answer(p.inventory)
	p.answers[q] = a
	q.count(a, p.inventory, 1)
}

// forget takes back what a node answered.
func (m *mirror) forget(p *published) {
	for q, a := range p.answers {
		q.count(a, p.inventory, -1)
	}
	clear(p.answers)
}

func (q *question) count(a answer, v *translate.Inventory, by int) {
	if a.gpus != translate.MatchNone {
		q.gpus += by
	}
	if a.nics != translate.MatchNone {
		q.nics += by
	}
	if a.gpus == translate.MatchAll {
		q.all += by
		n := v.Count()
		if q.sizes[n] += by; q.sizes[n] == 0 {
			delete(q.sizes, n)
		}
	}
}

// ask returns the question of a key, which every node has answered.
func (m *mirror) ask(key string, answer func(*translate.Inventory) answer) *question {
	q := m.dra.questions[key]
	if q != nil {
		return q
	}
	h := fnv.New64a()
	h.Write([]byte(key))
	q = &question{label: matchLabel + strconv.FormatUint(h.Sum64(), 36), answer: answer, sizes: map[int]int{}}
	m.dra.questions[key] = q
	for name, p := range m.dra.nodes {
		if p.inventory != nil {
			m.put(q, p)
			m.nodeDirty(name)
		}
	}
	return q
}

// askSelector asks on how many nodes the devices are as a class and selectors
// say.
func (m *mirror) askSelector(class *deviceClassObject, selectors []string) (*question, error) {
	all := slices.Concat(class.selectors, selectors)
	key := strings.Join(all, "\x00")
	if q := m.dra.questions[key]; q != nil {
		return q, nil
	}
	s, err := translate.CompileSelector(all)
	if err != nil {
		return nil, err
	}
	return m.ask(key, func(v *translate.Inventory) answer { return answer{s.Match(v.GPUs), s.Match(v.NICs)} }), nil
}

// publish describes the devices of a node to the engine, if drivers publish them
// and no device plugin does.
func (m *mirror) publish(n *node, want *core.Node) {
	p := m.dra.nodes[want.Name]
	if p == nil || p.inventory == nil || len(p.inventory.GPUs) == 0 || want.GPUs > 0 {
		return
	}
	v := p.inventory
	want.GPUs, want.Devices = len(v.GPUs), v.Layout
	if want.Model = translate.Model(want.Labels); want.Model == translate.UnknownModel && v.Product != "" {
		want.Model = v.Product
	}
	want.Labels = maps.Clone(want.Labels)
	want.Labels[gpusLabel] = strconv.Itoa(v.Count())
	if v.Paired {
		want.Labels[nicsLabel] = "paired"
	}
	for q, a := range p.answers {
		if a.gpus != translate.MatchNone {
			want.Labels[q.label] = matches[a.gpus]
		}
		if a.nics != translate.MatchNone {
			want.Labels[q.label+"-nics"] = matches[a.nics]
		}
	}
}

// unusable returns the devices of a node that the engine may not use; false when
// its GPUs are not published by DRA.
func (m *mirror) unusable(n *node) (uint64, bool) {
	p := m.dra.nodes[n.object.Name]
	if _, ok := n.told.Labels[gpusLabel]; !ok || p == nil || p.inventory == nil {
		return 0, false
	}
	if p.stale {
		return 1<<n.told.GPUs - 1, true
	}
	tainted := func(d translate.DeviceID) bool {
		for _, r := range m.dra.rules {
			if r.taints(d) {
				return true
			}
		}
		return false
	}
	set := p.inventory.Unusable(tainted, func(d translate.DeviceID) bool { return m.dra.held[d] != nil })
	used := uint64(0)
	for _, o := range n.pods {
		used |= o.devices
	}
	for i := range p.inventory.GPUs {
		if d := &p.inventory.GPUs[i]; used>>i&1 == 0 && m.held(d.DeviceID) {
			set |= 1 << i
		}
	}
	return set, true
}

// held reports whether a claim has the device, or is about to.
func (m *mirror) held(d translate.DeviceID) bool {
	if m.dra.held[d] != nil {
		return true
	}
	for _, list := range m.dra.inFlight {
		if slices.Contains(list, d) {
			return true
		}
	}
	return false
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

func (m *mirror) deviceClaimGone(namespace, name string) {
	k := key(namespace, name)
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
	there := make(map[types.NamespacedName]bool, len(list))
	for _, o := range list {
		there[key(o.Namespace, o.Name)] = true
		m.deviceClaimSeen(o)
	}
	for k, c := range m.dra.claims {
		if c.object != nil && !there[k] {
			m.deviceClaimGone(k.Namespace, k.Name)
		}
	}
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
		m.weigh(p)
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
	clear(m.dra.classes)
	for _, o := range list {
		m.dra.classes[o.Name] = o
	}
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
			m.log.Error("the engine cannot be built anew", "error", err)
		}
	}
}

func (m *mirror) taintRuleSeen(o *taintRule) {
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

func (m *mirror) taintRulesListed(list []*taintRule) {
	there := map[string]bool{}
	for _, o := range list {
		there[o.Name] = true
		m.taintRuleSeen(o)
	}
	for name := range m.dra.rules {
		if !there[name] {
			m.taintRuleGone(name)
		}
	}
}

// tainted has the nodes looked at again that a rule may concern.
func (m *mirror) tainted(r *taintRule) {
	if r == nil || r.none {
		return
	}
	for pool, name := range m.dra.pools {
		if (r.pool == nil || *r.pool == pool.name) && (r.driver == nil || *r.driver == pool.driver) {
			m.nodeDirty(name)
		}
	}
}

// needs is what a pod needs of a node, claims and devices included.
type needs struct {
	request core.Request
	// reason and detail say why it cannot be placed, "" when it can.
	reason, detail string
	// together says that its gang must share its node, for they share devices.
	together bool
	claims   []claimNeed
}

// claimNeed is what is to be done about a claim when the pod is bound.
type claimNeed struct {
	claim    *claim
	carries  bool // its devices are the pod's
	consumer resourceapi.ResourceClaimConsumerReference
}

// refer notes which claims a pod refers to.
func (m *mirror) refer(p *pod) {
	for _, r := range p.object.deviceClaims {
		if r.claim != "" {
			m.claimOf(key(p.object.Namespace, r.claim)).users[p.object.UID] = p
		}
	}
}

// unrefer takes back that it refers to those.
func (m *mirror) unrefer(p *pod, refs []claimRef) {
	for _, r := range refs {
		k := key(p.object.Namespace, r.claim)
		c := m.dra.claims[k]
		if c == nil {
			continue
		}
		delete(c.users, p.object.UID)
		if c.carrier == p {
			c.carrier = nil
		}
		m.claimChanged(c)
		if c.object == nil && len(c.users) == 0 {
			delete(m.dra.claims, k)
		}
	}
}

// deviceClaimsSeen takes in the names of a pod's claims, which become known after
// the pod.
func (m *mirror) deviceClaimsSeen(p *pod, old *podObject) {
	if slices.Equal(p.object.deviceClaims, old.deviceClaims) {
		return
	}
	m.unrefer(p, old.deviceClaims)
	m.refer(p)
	m.reconsider(p)
}

// resolve finds out what a pod of ours needs.
func (m *mirror) resolve(p *pod) {
	o := p.object
	if p.needs != nil || p.group == nil || !o.ours {
		return
	}
	if len(o.deviceClaims) == 0 {
		if m.dra.any && o.request.GPU > 0 {
			p.needs = &needs{request: m.byResource(o)}
		}
		return
	}
	n := &needs{request: withSelector(o.request)}
	p.needs = n
	stop := func(reason, format string, args ...any) {
		if n.reason == "" || reason == ReasonMisconfigured {
			n.reason, n.detail = reason, fmt.Sprintf(format, args...)
		}
	}
	if !m.dra.served {
		stop(ReasonMisconfigured, "the pod has resource claims, and this cluster does not serve %s", resourceapi.SchemeGroupVersion)
		return
	}
	gpus, nics := 0, 0
	for i := range o.deviceClaims {
		r := &o.deviceClaims[i]
		if r.none {
			continue
		}
		c := m.claimOf(key(o.Namespace, r.claim))
		if r.claim == "" || c.object == nil || c.object.deleting {
			stop(ReasonClaimPending, "resource claim %s has not been made yet", cmp.Or(r.claim, r.name))
			continue
		}
		need, shared := claimNeed{claim: c, consumer: consumer(p)}, false
		if pg := m.podGroupOf(p.group); pg != nil {
			for _, g := range pg.deviceClaims {
				if g.name == r.name && g.source == r.source && g.template == r.template {
					shared = true
					need.consumer = resourceapi.ResourceClaimConsumerReference{
						APIGroup: schedulingv1beta1.GroupName, Resource: "podgroups", Name: pg.Name, UID: pg.UID,
					}
				}
			}
		}
		if r.template && !shared && c.object.owner != o.UID {
			stop(ReasonClaimPending, "resource claim %s belongs to another pod", r.claim)
			continue
		}
		m.resolveClaim(p, &need, stop, &gpus, &nics)
		n.claims = append(n.claims, need)
	}
	switch {
	case gpus > 0 && o.request.GPU > 0:
		stop(ReasonMisconfigured, "GPUs are asked for by claims and by a resource or an annotation: expected one of them")
	case gpus > cluster.MaxGPUs:
		stop(ReasonMisconfigured, "%d GPUs are asked for, expected at most %d a pod", gpus, cluster.MaxGPUs)
	case nics > gpus && p.state == podWaiting:
		stop(ReasonMisconfigured, "%d network devices and %d GPUs are asked for: each comes with a GPU, so expected no more of them", nics, gpus)
	}
	if n.reason != "" {
		m.dra.stuck[p] = true
	}
	if gpus > 0 {
		n.request.GPU = core.Milli(gpus) * core.WholeGPU
	}
	if nics > 0 {
		n.request.Selector = append(n.request.Selector, core.Requirement{Key: nicsLabel, Op: cluster.In, Values: []string{"paired"}})
	}
}

// byResource is what a pod needs that asks for GPUs by a resource: nodes with a
// device plugin or, where a device class provides the resource, with its devices.
func (m *mirror) byResource(o *podObject) core.Request {
	plain := core.Requirement{Key: gpusLabel, Op: cluster.DoesNotExist}
	class := m.dra.resources[o.resource]
	if class == nil || o.resource == "" || class.wrong != "" {
		return withSelector(o.request, plain)
	}
	q, err := m.askSelector(class, nil)
	if err != nil {
		return withSelector(o.request, plain)
	}
	r := withSelector(o.request)
	translate.AddAlternatives(&r, [][]core.Requirement{{plain}, {{Key: q.label, Op: cluster.In, Values: []string{"all"}}}})
	return r
}

// withSelector returns a request with further requirements, its lists its own.
func withSelector(r core.Request, more ...core.Requirement) core.Request {
	r.Selector = slices.Concat(r.Selector, more)
	return r
}

// consumer is how a claim names the pod.
func consumer(p *pod) resourceapi.ResourceClaimConsumerReference {
	return resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: p.object.Name, UID: p.object.UID}
}

// resolveClaim adds what a claim needs to what its pod needs: devices if the pod
// carries them, the node where they are if another does.
func (m *mirror) resolveClaim(p *pod, need *claimNeed, stop func(reason, format string, args ...any), gpus, nics *int) {
	c, o := need.claim, need.claim.object
	if o.wrong != "" && !o.allocated {
		stop(ReasonMisconfigured, "resource claim %s: %s", o.Name, o.wrong)
		return
	}
	carrier, gang := m.carrier(c), m.inGang(p)
	if p.state != podWaiting {
		if need.carries = carrier == p; !need.carries {
			return
		}
		if o.spec != nil {
			var ignored int
			m.resolveRequests(p, o, func(string, string, ...any) {}, &ignored, &ignored)
		}
		*gpus += len(m.gpusOf(c, p.target))
		return
	}
	if o.allocated {
		switch other, live := m.inUse(c, p, need.consumer.UID); {
		case live:
		case other != "":
			stop(ReasonClaimPending, "resource claim %s is reserved for %s still", o.Name, other)
			return
		default:
			// Left over from a start that failed, or from a gang that left.
			m.acts.release = append(m.acts.release, claimOrder{
				namespace: o.Namespace, name: o.Name, uid: o.UID, consumer: need.consumer, last: true,
			})
			stop(ReasonClaimPending, "the devices of resource claim %s are being given back", o.Name)
			return
		}
		if o.node != nil {
			if err := translate.InNodes(o.node, &p.needs.request); err != nil {
				stop(ReasonMisconfigured, "resource claim %s: %v", o.Name, err)
			}
		}
		return
	}
	switch {
	case carrier != nil && carrier != p && carrier.slot < 0 && carrier.state == podWaiting && !carrier.ready():
		carrier.needs = nil // another goes first
		fallthrough
	case carrier == nil || carrier == p:
		c.carrier, need.carries = p, true
	case carrier.group == p.group && gang:
		p.needs.together = true
		return
	default:
		stop(ReasonClaimPending, "the devices of resource claim %s are to be those of pod %s first", o.Name, carrier.object.Name)
		return
	}
	m.resolveRequests(p, o, stop, gpus, nics)
}

// inUse reports whether a pod that has a node uses a claim, or else names who
// beside p, or the consumer that stands for it, the claim is reserved for.
func (m *mirror) inUse(c *claim, p *pod, consumer types.UID) (other string, live bool) {
	for _, u := range c.users {
		if u != p && u.state != podWaiting {
			return "", true
		}
	}
	for _, r := range c.object.consumers {
		if u := m.pods[r.UID]; u != nil && u != p && u.state != podWaiting {
			return "", true
		}
		if r.UID != p.object.UID && r.UID != consumer {
			other = r.Resource + " " + r.Name
		}
	}
	return other, false
}

// inGang reports whether a pod's group starts whole.
func (m *mirror) inGang(p *pod) bool {
	pg := m.podGroupOf(p.group)
	return pg != nil && pg.min > 1 || p.group.gang()
}

// carrier returns the pod to which the devices of a claim are counted, nil when
// there is none.
func (m *mirror) carrier(c *claim) *pod {
	if c.carrier != nil && m.pods[c.carrier.object.UID] == c.carrier {
		return c.carrier
	}
	c.carrier = nil
	if c.object == nil || !c.object.allocated {
		return nil
	}
	for _, r := range c.object.consumers {
		if p := c.users[r.UID]; p != nil && p.state != podWaiting {
			c.carrier = p
			return p
		}
	}
	if list := inOrder(c.users, func(p *pod) bool { return p.state != podWaiting }); len(list) > 0 {
		c.carrier = list[0]
	}
	return c.carrier
}

// resolveRequests adds the requests of a claim to what a pod needs.
func (m *mirror) resolveRequests(p *pod, o *deviceClaimObject, stop func(reason, format string, args ...any), gpus, nics *int) {
	fail := func(reason, format string, args ...any) {
		stop(reason, "resource claim "+o.Name+": "+format, args...)
	}
	type span struct{ gpus, nics, firstGPU, firstNIC int }
	spans := make([]span, len(o.spec.Requests))
	for i := range o.spec.Requests {
		r := &o.spec.Requests[i]
		var any [][]core.Requirement
		count, nic := 0, false
		for j := range r.Any {
			need := &r.Any[j]
			class := m.dra.classes[need.Class]
			if class == nil {
				fail(ReasonClaimPending, "request %s: there is no device class %s", need.Name, need.Class)
				return
			}
			if class.wrong != "" {
				fail(ReasonMisconfigured, "device class %s: %s", class.Name, class.wrong)
				return
			}
			q, err := m.askSelector(class, need.Selectors)
			if err != nil {
				fail(ReasonMisconfigured, "request %s: %v", need.Name, err)
				return
			}
			switch {
			case q.gpus == 0 && q.nics == 0:
				if len(r.Any) == 1 {
					fail(ReasonClaimPending, "request %s: no node publishes such a device", need.Name)
					return
				}
				continue
			case q.gpus > 0 && q.nics > 0:
				fail(ReasonMisconfigured, "request %s: GPUs and network devices are alike to its selectors; expected one kind", need.Name)
				return
			case q.nics > 0:
				nic, count = true, max(1, need.Count)
				any = append(any, []core.Requirement{{Key: q.label + "-nics", Op: cluster.In, Values: []string{"all"}}})
				if need.Count == 0 {
					fail(ReasonMisconfigured, "request %s: allocation mode All is for GPUs; expected a count of network devices", need.Name)
				}
				continue
			case q.all == 0:
				fail(ReasonMisconfigured, "request %s: its selectors hold for some GPUs of a node and not for others; expected selectors by which nodes are chosen, such as by model", need.Name)
				return
			}
			with := []core.Requirement{{Key: q.label, Op: cluster.In, Values: []string{"all"}}}
			count = need.Count
			if need.Count == 0 {
				if len(q.sizes) > 1 {
					fail(ReasonMisconfigured, "request %s: nodes have %s such GPUs, so that all of them is no number; expected a count", need.Name, sizes(q.sizes))
					return
				}
				for n := range q.sizes {
					count = n
				}
				with = append(with, core.Requirement{Key: gpusLabel, Op: cluster.In, Values: []string{strconv.Itoa(count)}})
			}
			any = append(any, with)
		}
		switch len(any) {
		case 0:
			fail(ReasonClaimPending, "request %s: no node publishes such a device", r.Name)
			return
		case 1:
			p.needs.request.Selector = append(p.needs.request.Selector, any[0]...)
		default:
			translate.AddAlternatives(&p.needs.request, any)
		}
		spans[i] = span{firstGPU: *gpus, firstNIC: *nics}
		if nic {
			spans[i].nics = count
			*nics += count
		} else {
			spans[i].gpus = count
			*gpus += count
		}
	}
	for i := range o.spec.Constraints {
		k := &o.spec.Constraints[i]
		sum := span{firstGPU: -1, firstNIC: -1}
		for j, s := range spans {
			if !k.Concerns(&o.spec.Requests[j]) {
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
		q := m.ask(fmt.Sprintf("constraint\x00%s\x00%d\x00%d\x00%t", k.Key(), sum.gpus, sum.nics, aligned), func(v *translate.Inventory) answer {
			if v.Count() > 0 && k.Holds(v, sum.gpus, sum.nics, aligned) {
				return answer{gpus: translate.MatchAll}
			}
			return answer{}
		})
		if q.all == 0 {
			fail(ReasonMisconfigured, "the constraint on %s is not supported: on no node it holds for any devices that may be chosen", k.Attribute)
			return
		}
		p.needs.request.Selector = append(p.needs.request.Selector, core.Requirement{Key: q.label, Op: cluster.In, Values: []string{"all"}})
	}
}

func sizes(of map[int]int) string {
	var out []string
	for _, n := range slices.Sorted(maps.Keys(of)) {
		out = append(out, strconv.Itoa(n))
	}
	return strings.Join(out, " or ")
}

// gpusOf returns which GPUs of a node a claim has, by the engine's numbers.
func (m *mirror) gpusOf(c *claim, node string) []int {
	p := m.dra.nodes[node]
	if p == nil || p.inventory == nil || c.object == nil {
		return nil
	}
	devices := c.object.devices
	if !c.object.allocated {
		devices = translate.AllocatedDevices(c.granted)
	}
	var out []int
	for i := range p.inventory.GPUs {
		if d := &p.inventory.GPUs[i]; d.Name != "" && slices.Contains(devices, d.DeviceID) {
			out = append(out, i)
		}
	}
	return out
}

// claimed returns the GPUs of the claims that a pod carries, where it is; false
// when it has no claims.
func (m *mirror) claimed(p *pod) ([]int, bool) {
	if p.object.extended != "" {
		if c := m.dra.claims[key(p.object.Namespace, p.object.extended)]; c != nil {
			return m.gpusOf(c, p.target), true
		}
	}
	if p.needs == nil || len(p.needs.claims) == 0 {
		return nil, false
	}
	var out []int
	for i := range p.needs.claims {
		if n := &p.needs.claims[i]; n.carries {
			out = append(out, m.gpusOf(n.claim, p.target)...)
		}
	}
	return out, true
}

// together reports whether pods of the group share devices, and so a node.
func (g *group) together() bool {
	for _, p := range g.pods {
		if p.needs != nil && p.needs.together {
			return true
		}
	}
	return false
}

// grant adds to bindings what to write into the claims of their pods: the devices
// that the engine chose, for the pods that carry them, and for the others that
// share them.
func (m *mirror) grant(list []bindAct) {
	wrong := map[*claim]string{}
	for i := range list {
		if p := list[i].pod; p.needs != nil {
			m.deal(p, wrong)
		}
	}
	for i := range list {
		p := list[i].pod
		if p.needs == nil {
			continue
		}
		if v := m.dra.nodes[p.target]; len(p.object.deviceClaims) == 0 && p.devices != 0 && v != nil && m.nodes[p.target].told.Labels[gpusLabel] != "" {
			gpus, _ := v.devices(p.devices)
			list[i].extended = &extendedOrder{resource: p.object.resource, class: m.dra.resources[p.object.resource], devices: gpus}
		}
		for _, need := range p.needs.claims {
			c := need.claim
			if c.object == nil {
				continue
			}
			list[i].claims = append(list[i].claims, claimOrder{
				namespace: c.object.Namespace, name: c.object.Name, uid: c.object.UID, version: c.object.ResourceVersion,
				finalizer: c.object.finalizer, consumer: need.consumer, allocation: c.granted, wrong: wrong[c],
			})
		}
	}
}

// deal gives the devices of a pod to the requests of the claims that it carries.
func (m *mirror) deal(p *pod, wrong map[*claim]string) {
	v := m.dra.nodes[p.target]
	if v == nil || v.inventory == nil {
		return
	}
	gpus, nics := v.devices(p.devices)
	for _, need := range p.needs.claims {
		c := need.claim
		if !need.carries || c.object == nil || c.object.allocated {
			continue
		}
		var grants []translate.Grant
		for j := range c.object.spec.Requests {
			r := &c.object.spec.Requests[j]
			g := m.choose(r, v, &gpus, &nics)
			if g == nil {
				wrong[c] = fmt.Sprintf("node %s has not the devices for request %s any more", p.target, r.Name)
				break
			}
			grants = append(grants, *g)
		}
		if wrong[c] == "" {
			c.granted = c.object.spec.Allocation(p.target, grants)
		}
	}
}

// notGranted takes in that a pod was not bound after all.
func (m *mirror) notGranted(p *pod) {
	if p.needs == nil || len(p.needs.claims) == 0 {
		return
	}
	for _, need := range p.needs.claims {
		if need.carries {
			need.claim.granted = nil
		}
	}
	p.needs = nil
	m.resolve(p)
}

// lifted notes the devices of a pod that went while its claims were written: they
// are not free before that is over.
func (m *mirror) lifted(p *pod) {
	v := m.dra.nodes[p.target]
	if p.inFlight && v != nil && p.devices != 0 {
		m.dra.inFlight[p.object.UID], _ = v.devices(p.devices)
	}
}

// devices names the GPUs of a set, and the NICs that are nearest to them.
func (v *published) devices(set uint64) (gpus, nics []translate.DeviceID) {
	for s := set; s != 0 && v.inventory != nil; s &= s - 1 {
		i := bits.TrailingZeros64(s)
		if i >= len(v.inventory.GPUs) {
			break
		}
		gpus = append(gpus, v.inventory.GPUs[i].DeviceID)
		if nic := v.inventory.Layout[i].NIC; nic >= 0 {
			nics = append(nics, v.inventory.NICs[nic].DeviceID)
		}
	}
	return gpus, nics
}

// landed takes in that it is over.
func (m *mirror) landed(uid types.UID) {
	for _, d := range m.dra.inFlight[uid] {
		m.nodeDirty(m.dra.pools[poolID{d.Driver, d.Pool}])
	}
	delete(m.dra.inFlight, uid)
}

// choose takes the devices of a request from those that the engine chose.
func (m *mirror) choose(r *translate.ClaimRequest, v *published, gpus, nics *[]translate.DeviceID) *translate.Grant {
	for i := range r.Any {
		need := &r.Any[i]
		class := m.dra.classes[need.Class]
		if class == nil {
			continue
		}
		q, err := m.askSelector(class, need.Selectors)
		if err != nil {
			continue
		}
		from, count := gpus, need.Count
		if a := v.answers[q]; a.nics == translate.MatchAll && a.gpus == translate.MatchNone {
			from = nics
		} else if a.gpus != translate.MatchAll {
			continue
		} else if count == 0 {
			count = v.inventory.Count()
		}
		if len(*from) < count {
			continue
		}
		grant := &translate.Grant{Need: need, Devices: (*from)[:count], Config: class.config}
		*from = (*from)[count:]
		return grant
	}
	return nil
}
