package kube

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/translate"
)

// Where the volumes of pods are. A pod waits until its claims are bound, and goes
// where their volumes can be reached. A claim whose class waits for its first
// consumer is told the node when the pod has one, and the pod is bound when the
// volume is there.

// ReasonVolume is why a pod waits whose volumes are not ready.
const ReasonVolume = "VolumeNotReady"

// volumePatience is how long a volume may take to be made for a pod; the pod is
// then placed anew.
const volumePatience = core.Time(10 * time.Minute)

// claimObject is what the scheduler needs of a PersistentVolumeClaim.
type claimObject struct {
	metav1.ObjectMeta
	owner    types.UID // its controller's
	class    string
	volume   string
	bound    bool
	lost     bool
	deleting bool
	// exclusive says that one pod at a time may use it.
	exclusive bool
	// shared says that pods of several nodes may use it.
	shared bool
	// selected is the node for which it is to be made.
	selected string
}

func trimClaim(c *v1.PersistentVolumeClaim) *claimObject {
	o := &claimObject{
		ObjectMeta: trimMeta(&c.ObjectMeta), class: volume.GetPersistentVolumeClaimClass(c), volume: c.Spec.VolumeName,
		lost: c.Status.Phase == v1.ClaimLost, deleting: c.DeletionTimestamp != nil,
		exclusive: slices.Contains(c.Spec.AccessModes, v1.ReadWriteOncePod), selected: c.Annotations[volume.AnnSelectedNode],
	}
	o.shared = slices.Contains(c.Spec.AccessModes, v1.ReadWriteMany) || slices.Contains(c.Spec.AccessModes, v1.ReadOnlyMany)
	_, complete := c.Annotations[volume.AnnBindCompleted]
	o.bound = complete && o.volume != ""
	if owner := metav1.GetControllerOf(c); owner != nil {
		o.owner = owner.UID
	}
	return o
}

// volumeObject is what the scheduler needs of a PersistentVolume.
type volumeObject struct {
	metav1.ObjectMeta
	claim types.NamespacedName // which it is, or is to be, bound to
	nodes core.Request         // those that can reach it
	wrong string
	// driver is the CSI driver that attaches it, empty when none does.
	driver string
}

func trimVolume(v *v1.PersistentVolume) *volumeObject {
	o := &volumeObject{ObjectMeta: trimMeta(&v.ObjectMeta)}
	if r := v.Spec.ClaimRef; r != nil {
		o.claim = key(r.Namespace, r.Name)
	}
	if v.Spec.CSI != nil {
		o.driver = v.Spec.CSI.Driver
	}
	if err := translate.VolumeNodes(v, &o.nodes); err != nil {
		o.wrong = err.Error()
	}
	return o
}

// classObject is what the scheduler needs of a StorageClass.
type classObject struct {
	metav1.ObjectMeta
	// late says that volumes are made, or chosen, for the node of their first pod.
	late        bool
	makes       bool // it has a provisioner
	provisioner string
	nodes       core.Request // those for which it makes volumes
}

func trimClass(c *storagev1.StorageClass) *classObject {
	o := &classObject{
		ObjectMeta: trimMeta(&c.ObjectMeta), makes: c.Provisioner != "kubernetes.io/no-provisioner", provisioner: c.Provisioner,
		late: c.VolumeBindingMode != nil && *c.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer,
	}
	translate.ClassNodes(c, &o.nodes)
	return o
}

// storage is the claims, volumes and classes there are, and who uses them.
type storage struct {
	claims  map[types.NamespacedName]*claimObject
	volumes map[string]*volumeObject
	classes map[string]*classObject
	// limits is how many volumes nodes can attach, by driver; limited how many nodes
	// limit a driver.
	limits  map[string]map[string]int64
	limited map[string]int
	users   map[types.NamespacedName]map[types.UID]*pod
	// providing has the pods that have a node, and volumes being made for it.
	providing map[types.UID]*provision
}

// provision is a binding that waits for volumes.
type provision struct {
	act      bindAct
	claims   []types.NamespacedName
	deadline core.Time
	// told says that the API has shown the node on all of the claims.
	told bool
}

func newStorage() storage {
	return storage{
		claims: map[types.NamespacedName]*claimObject{}, volumes: map[string]*volumeObject{}, classes: map[string]*classObject{},
		limits: map[string]map[string]int64{}, limited: map[string]int{},
		users: map[types.NamespacedName]map[types.UID]*pod{}, providing: map[types.UID]*provision{},
	}
}

// volumes is where a pod may be for its volumes, and how many it attaches.
type volumes struct {
	wait    string       // why it cannot be placed now, empty when it can
	nodes   core.Request // what of the labels of nodes
	unbound []types.NamespacedName
	// attached is what it takes of what its node can attach.
	attached []core.Amount
}

// use counts a pod among those that use its claims.
func (m *mirror) use(p *pod) {
	for _, c := range p.object.claims {
		k := key(p.object.Namespace, c.Name)
		if m.storage.users[k] == nil {
			m.storage.users[k] = map[types.UID]*pod{}
		}
		m.storage.users[k][p.object.UID] = p
	}
	m.weighUsers(p)
}

func (m *mirror) unuse(p *pod) {
	delete(m.storage.providing, p.object.UID)
	for _, c := range p.object.claims {
		k := key(p.object.Namespace, c.Name)
		if delete(m.storage.users[k], p.object.UID); len(m.storage.users[k]) == 0 {
			delete(m.storage.users, k)
		}
	}
	m.weighUsers(p)
}

// weighUsers looks again at all pods that share a claim with p.
func (m *mirror) weighUsers(p *pod) {
	for _, c := range p.object.claims {
		m.weighClaim(key(p.object.Namespace, c.Name))
	}
}

func (m *mirror) weighClaim(k types.NamespacedName) {
	for _, p := range m.storage.users[k] {
		m.weigh(p)
	}
}

// weigh finds out anew where a pod may be for its volumes. One that waits for a
// place, and may now be elsewhere, leaves the engine's job and joins it again; a
// gang of which nothing runs does so whole.
func (m *mirror) weigh(p *pod) {
	v := m.volumesOf(p)
	v.attached = m.attached(p)
	m.recount(p, v)
	g := p.group
	if g == nil {
		return
	}
	m.touch(g)
	if p.state != podWaiting || p.slot < 0 || g.draining {
		return
	}
	switch spec := p.request(); {
	case p.ready() && spec.Equal(&p.task.spec):
	case g.gang() && !g.runs():
		m.withdraw(g)
	default:
		m.leaveSlot(p)
	}
}

// request is what a pod of ours needs of a node.
func (p *pod) request() core.Request {
	r := p.object.request
	if p.needs != nil {
		r = p.needs.request
	}
	if len(p.object.claims) > 0 {
		translate.Require(&r, &p.volumes.nodes)
		r.Others = translate.AddOthers(r.Others, p.volumes.attached, 1)
	}
	return r
}

func (m *mirror) volumesOf(p *pod) volumes {
	var out volumes
	for _, c := range p.object.claims {
		k := key(p.object.Namespace, c.Name)
		o := m.storage.claims[k]
		if out.wait = m.cannotUse(p, c, k, o); out.wait != "" {
			return out
		}
		if o.bound {
			v := m.storage.volumes[o.volume]
			switch {
			case v == nil:
				out.wait = fmt.Sprintf("volume %s of claim %s does not exist", o.volume, c.Name)
				return out
			case v.wrong != "":
				out.wait = fmt.Sprintf("volume %s of claim %s: %s", o.volume, c.Name, v.wrong)
				return out
			}
			translate.Require(&out.nodes, &v.nodes)
			continue
		}
		class := m.storage.classes[o.class]
		switch {
		case o.class != "" && class == nil:
			out.wait = fmt.Sprintf("storage class %s of claim %s does not exist", o.class, c.Name)
		case class == nil || !class.late || o.volume != "":
			out.wait = fmt.Sprintf("claim %s is not bound to a volume yet", c.Name)
		case !class.makes:
			out.wait = fmt.Sprintf("claim %s is not bound to a volume yet, and storage class %s makes none", c.Name, o.class)
		}
		if out.wait != "" {
			return out
		}
		translate.Require(&out.nodes, &class.nodes)
		if o.selected != "" {
			// It is being made for that node, until somebody takes that back.
			out.nodes.Selector = append(out.nodes.Selector, core.Requirement{Key: translate.NodeName, Op: cluster.In, Values: []string{o.selected}})
		}
		out.unbound = append(out.unbound, k)
	}
	return out
}

// cannotUse says why a pod may not use a claim now, however it is bound.
func (m *mirror) cannotUse(p *pod, c translate.Claim, k types.NamespacedName, o *claimObject) string {
	switch {
	case o == nil:
		return fmt.Sprintf("volume claim %s does not exist", c.Name)
	case o.deleting:
		return fmt.Sprintf("volume claim %s is being deleted", c.Name)
	case o.lost:
		return fmt.Sprintf("volume claim %s has lost its volume", c.Name)
	case c.Ephemeral && o.owner != p.object.UID:
		return fmt.Sprintf("volume claim %s was not made for this pod", c.Name)
	case !o.exclusive:
		return ""
	}
	for _, other := range m.storage.users[k] {
		if other != p && (other.state != podWaiting || other.object.wrong == "" && !other.object.otherGates && older(other, p)) {
			return fmt.Sprintf("volume claim %s is for one pod at a time, and is pod %s's", c.Name, other.object.Name)
		}
	}
	return ""
}

func older(a, b *pod) bool {
	return cmp.Or(a.object.created.Compare(b.object.created), cmp.Compare(a.object.UID, b.object.UID)) < 0
}

// provide has the volumes of a pod made for the node that it has got.
func (m *mirror) provide(b bindAct) {
	p := b.pod
	shared := map[types.NamespacedName]bool{}
	for _, other := range m.storage.providing {
		for _, k := range other.claims {
			shared[k] = true
		}
	}
	m.storage.providing[p.object.UID] = &provision{act: b, claims: p.volumes.unbound, deadline: m.now + volumePatience}
	m.acts.wake = min(m.acts.wake, m.now+volumePatience)
	for _, k := range p.volumes.unbound {
		if c := m.storage.claims[k]; !shared[k] && c.selected != b.Node {
			m.acts.choose = append(m.acts.choose, act.SelectNode{Claim: k, UID: c.UID, Node: b.Node, Pod: p.object.UID})
		}
	}
}

// provided binds the pods whose volumes are there now, and gives up those whose
// volumes do not come.
func (m *mirror) provided() {
	if len(m.storage.providing) == 0 {
		return
	}
	list := make([]*provision, 0, len(m.storage.providing))
	for _, x := range m.storage.providing {
		list = append(list, x)
	}
	slices.SortFunc(list, func(a, b *provision) int { return cmp.Compare(a.act.pod.object.UID, b.act.pod.object.UID) })
	for _, x := range list {
		uid := x.act.pod.object.UID
		done, failure := m.progress(x)
		switch {
		case failure != "":
			m.log.Info("a pod is not bound for want of its volumes", "pod", x.act.pod.object.Namespace+"/"+x.act.pod.object.Name, "node", x.act.Node, "why", failure)
			m.notProvided(uid)
		case done:
			delete(m.storage.providing, uid)
			m.acts.bind = append(m.acts.bind, x.act)
		default:
			m.acts.wake = min(m.acts.wake, x.deadline)
		}
	}
}

// progress says whether all volumes are there, or why they will not be.
func (m *mirror) progress(x *provision) (done bool, failure string) {
	p := x.act.pod
	if p.state != podBinding {
		return false, "it is to leave again"
	}
	done = true
	told := true
	for _, k := range x.claims {
		c := m.storage.claims[k]
		if c == nil || c.deleting {
			return false, fmt.Sprintf("volume claim %s does not exist any more", k.Name)
		}
		done, told = done && c.bound && m.storage.volumes[c.volume] != nil, told && (c.bound || c.selected != "")
	}
	switch {
	case done:
		n, nodes := m.nodes[x.act.Node], p.volumes.nodes
		if n == nil || !nodes.Allows(n.told.Labels) {
			return false, "a volume was made that cannot be reached from the node"
		}
	case x.told && !told:
		return false, "no volume can be made for the node"
	case m.now >= x.deadline:
		return false, "its volumes were not made in time"
	}
	x.told = told
	return done, ""
}

// notProvided takes in that volumes cannot be made for a pod where it is.
func (m *mirror) notProvided(uid types.UID) {
	x := m.storage.providing[uid]
	if x == nil {
		return
	}
	delete(m.storage.providing, uid)
	for _, k := range x.claims {
		if c := m.storage.claims[k]; c != nil && !c.bound && c.selected == x.act.Node {
			m.acts.choose = append(m.acts.choose, act.SelectNode{Claim: k, UID: c.UID})
		}
	}
	m.bound(uid, x.act.pod.state == podBound, false)
}

// claimSeen takes in a claim as it is now.
func (m *mirror) claimSeen(o *claimObject) {
	k := key(o.Namespace, o.Name)
	m.storage.claims[k] = o
	m.weighClaim(k)
}

func (m *mirror) claimGone(o *claimObject) {
	k := key(o.Namespace, o.Name)
	delete(m.storage.claims, k)
	m.weighClaim(k)
}

func (m *mirror) claimsListed(list []*claimObject) {
	refill(m.storage.claims, list, keyOf)
	m.weighAll()
}

// volumeSeen takes in a volume as it is now.
func (m *mirror) volumeSeen(o *volumeObject) {
	m.storage.volumes[o.Name] = o
	m.weighClaim(o.claim)
}

func (m *mirror) volumeGone(o *volumeObject) {
	delete(m.storage.volumes, o.Name)
	m.weighClaim(o.claim)
}

func (m *mirror) volumesListed(list []*volumeObject) {
	refill(m.storage.volumes, list, nameOf)
	m.weighAll()
}

// classSeen takes in a storage class as it is now.
func (m *mirror) classSeen(o *classObject) {
	m.storage.classes[o.Name] = o
	m.weighAll()
}

func (m *mirror) classGone(o *classObject) {
	delete(m.storage.classes, o.Name)
	m.weighAll()
}

func (m *mirror) classesListed(list []*classObject) {
	refill(m.storage.classes, list, nameOf)
	m.weighAll()
}

// weighAll looks again at all pods with claims.
func (m *mirror) weighAll() {
	for k := range m.storage.users {
		m.weighClaim(k)
	}
}
