// Package storage determines on which nodes pods can use their volumes.
//
// A pod waits until its claims are bound, and goes where their volumes can be
// reached. A claim whose class waits for its first consumer is given the node when
// the pod has one; the pod is bound when the volume is there.
//
// [Index] observes pods, claims, volumes, storage classes and what nodes can attach, each
// as it is now. An observation returns whose answers it changed ([Change]), and
// [Index.Needs] and [Index.Attachable] are the answers. The index knows nothing about
// jobs or the engine, and does no I/O.
package storage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/kube/translate"
)

// Pod is what the index knows about a pod.
type Pod struct {
	UID             types.UID
	Namespace, Name string
	Created         time.Time
	Claims          []translate.Claim
	// Placed is set if it has a node, or one was chosen for it.
	Placed bool
	// Blocked says that it cannot be placed for a reason other than its volumes. It takes
	// no claim away from a pod that can be placed.
	Blocked bool
}

// Needs is what a pod needs of a node for its volumes. A value that was returned
// never changes.
type Needs struct {
	// Wait is why the pod cannot be placed now; it is empty if it can.
	Wait string
	// Nodes has the requirements on the labels of the node, and nothing else.
	Nodes core.Request
	// Unbound lists the claims whose volumes are made for the node once it is known.
	Unbound []types.NamespacedName
	// Attached is how many volumes the pod takes of what its node can attach, sorted
	// by name.
	Attached []core.Amount
}

// nothing is what a pod without claims needs.
var nothing Needs

func (n *Needs) equal(o *Needs) bool {
	return n.Wait == o.Wait && n.Nodes.Equal(&o.Nodes) && slices.Equal(n.Unbound, o.Unbound) && slices.Equal(n.Attached, o.Attached)
}

// Change is what an observation changed.
type Change struct {
	// Pods lists those for which the answer of [Index.Needs] changed, in ascending order.
	Pods []types.UID
	// Nodes lists those of which the limits changed, in ascending order. When Drivers is
	// set, the answer of [Index.Attachable] may have changed for all nodes.
	Nodes []string
	// Drivers says that a driver's volumes are counted from now on, or no longer. This
	// changes what placed pods take.
	Drivers bool
}

// Index is what is known about volumes. It is not safe for concurrent use.
type Index struct {
	claims  map[types.NamespacedName]*Claim
	volumes map[string]*Volume
	classes map[string]*Class
	// limits is how many volumes nodes can attach, by node and driver; limited counts
	// the nodes that limit a driver.
	limits  map[string]map[string]int64
	limited map[string]int
	// pods has those with claims; users has them by claim.
	pods  map[types.UID]*user
	users map[types.NamespacedName]map[types.UID]*user
	// making has the pods that wait on their node for volumes to be made.
	making map[types.UID]*making
}

// user is a pod that uses claims, and the last answer about it.
type user struct {
	Pod
	needs *Needs
}

// New returns an empty index.
func New() *Index {
	return &Index{
		claims: map[types.NamespacedName]*Claim{}, volumes: map[string]*Volume{}, classes: map[string]*Class{},
		limits: map[string]map[string]int64{}, limited: map[string]int{},
		pods: map[types.UID]*user{}, users: map[types.NamespacedName]map[types.UID]*user{}, making: map[types.UID]*making{},
	}
}

// Needs returns what a pod needs for its volumes: nothing, if it has no claims or was not
// observed. It is never nil, and must not be changed.
func (x *Index) Needs(pod types.UID) *Needs {
	if u := x.pods[pod]; u != nil {
		return u.needs
	}
	return &nothing
}

// Len returns how many pods with claims there are.
func (x *Index) Len() int { return len(x.pods) }

// Shared reports whether pods on several nodes may use the volume of a claim at the
// same time.
func (x *Index) Shared(namespace, claim string) bool {
	c := x.claims[types.NamespacedName{Namespace: namespace, Name: claim}]
	return c != nil && c.shared
}

// ObservePod records the present state of a pod. Its claims never change.
func (x *Index) ObservePod(p Pod) Change {
	if len(p.Claims) == 0 {
		return Change{}
	}
	u := x.pods[p.UID]
	if u == nil {
		u = &user{needs: &nothing}
		x.pods[p.UID] = u
		for _, k := range keys(&p) {
			if x.users[k] == nil {
				x.users[k] = map[types.UID]*user{}
			}
			x.users[k][p.UID] = u
		}
	}
	u.Pod = p
	c := x.review(x.contested(&p)...)
	if x.answer(u) {
		c.Pods = append(c.Pods, p.UID)
		slices.Sort(c.Pods)
	}
	return c
}

// ForgetPod records that a pod no longer uses its claims.
func (x *Index) ForgetPod(pod types.UID) Change {
	u := x.pods[pod]
	if u == nil {
		return Change{}
	}
	delete(x.making, pod)
	delete(x.pods, pod)
	for _, k := range keys(&u.Pod) {
		if delete(x.users[k], pod); len(x.users[k]) == 0 {
			delete(x.users, k)
		}
	}
	return x.review(x.contested(&u.Pod)...)
}

// ObserveClaim records the present state of a claim.
func (x *Index) ObserveClaim(c *Claim) Change {
	x.claims[key(c)] = c
	return x.review(key(c))
}

// ForgetClaim records that a claim was deleted.
func (x *Index) ForgetClaim(c *Claim) Change {
	delete(x.claims, key(c))
	return x.review(key(c))
}

// ReplaceClaims replaces all known claims.
func (x *Index) ReplaceClaims(list []*Claim) Change {
	clear(x.claims)
	for _, c := range list {
		x.claims[key(c)] = c
	}
	return x.reviewAll()
}

// ObserveVolume records the present state of a volume.
func (x *Index) ObserveVolume(v *Volume) Change {
	x.volumes[v.Name] = v
	return x.review(v.claim)
}

// ForgetVolume records that a volume was deleted.
func (x *Index) ForgetVolume(v *Volume) Change {
	delete(x.volumes, v.Name)
	return x.review(v.claim)
}

// ReplaceVolumes replaces all known volumes.
func (x *Index) ReplaceVolumes(list []*Volume) Change {
	clear(x.volumes)
	for _, v := range list {
		x.volumes[v.Name] = v
	}
	return x.reviewAll()
}

// ObserveClass records the present state of a storage class.
func (x *Index) ObserveClass(c *Class) Change {
	x.classes[c.Name] = c
	return x.reviewAll()
}

// ForgetClass records that a storage class was deleted.
func (x *Index) ForgetClass(c *Class) Change {
	delete(x.classes, c.Name)
	return x.reviewAll()
}

// ReplaceClasses replaces all known storage classes.
func (x *Index) ReplaceClasses(list []*Class) Change {
	clear(x.classes)
	for _, c := range list {
		x.classes[c.Name] = c
	}
	return x.reviewAll()
}

// review determines again what the users of some claims need.
func (x *Index) review(claims ...types.NamespacedName) Change {
	var changed []types.UID
	for _, k := range claims {
		for uid, u := range x.users[k] {
			if x.answer(u) {
				changed = append(changed, uid)
			}
		}
	}
	slices.Sort(changed) // answer reports a change once: no pod is listed twice
	return Change{Pods: changed}
}

// contested lists the claims of a pod that are for one pod at a time: what their other
// users need depends on it.
func (x *Index) contested(p *Pod) []types.NamespacedName {
	return slices.DeleteFunc(keys(p), func(k types.NamespacedName) bool { return x.claims[k] == nil || !x.claims[k].exclusive })
}

// reviewAll determines again what all pods need.
func (x *Index) reviewAll() Change {
	return x.review(slices.Collect(maps.Keys(x.users))...)
}

// answer determines what a pod needs, and reports whether that changed.
func (x *Index) answer(u *user) bool {
	now := x.where(&u.Pod)
	now.Attached = x.attached(&u.Pod)
	if now.equal(u.needs) {
		return false
	}
	u.needs = &now
	return true
}

// where returns what a pod needs, except for what it attaches.
func (x *Index) where(p *Pod) Needs {
	var out Needs
	for _, use := range p.Claims {
		k := types.NamespacedName{Namespace: p.Namespace, Name: use.Name}
		c := x.claims[k]
		if out.Wait = x.cannotUse(p, use, k, c); out.Wait != "" {
			return out
		}
		if c.bound {
			v := x.volumes[c.volume]
			switch {
			case v == nil:
				out.Wait = fmt.Sprintf("volume %s of claim %s does not exist", c.volume, use.Name)
				return out
			case v.wrong != "":
				out.Wait = fmt.Sprintf("volume %s of claim %s: %s", c.volume, use.Name, v.wrong)
				return out
			}
			translate.Require(&out.Nodes, &v.nodes)
			continue
		}
		class := x.classes[c.class]
		switch {
		case c.class != "" && class == nil:
			out.Wait = fmt.Sprintf("storage class %s of claim %s does not exist", c.class, use.Name)
		case class == nil || !class.late || c.volume != "":
			out.Wait = fmt.Sprintf("claim %s is not bound to a volume yet", use.Name)
		case !class.makes:
			out.Wait = fmt.Sprintf("claim %s is not bound to a volume yet, and storage class %s does not provision any", use.Name, c.class)
		}
		if out.Wait != "" {
			return out
		}
		translate.Require(&out.Nodes, &class.nodes)
		if c.selected != "" {
			// Its volume is being made for that node until the annotation is removed.
			out.Nodes.Selector = append(out.Nodes.Selector, core.Requirement{Key: translate.NodeName, Op: cluster.In, Values: []string{c.selected}})
		}
		out.Unbound = append(out.Unbound, k)
	}
	return out
}

// cannotUse says why a pod may not use a claim now, however the claim is bound.
func (x *Index) cannotUse(p *Pod, use translate.Claim, k types.NamespacedName, c *Claim) string {
	switch {
	case c == nil:
		return fmt.Sprintf("volume claim %s does not exist", use.Name)
	case c.deleting:
		return fmt.Sprintf("volume claim %s is being deleted", use.Name)
	case c.lost:
		return fmt.Sprintf("volume claim %s has lost its volume", use.Name)
	case use.Ephemeral && c.owner != p.UID:
		return fmt.Sprintf("volume claim %s was not created for this pod", use.Name)
	case !c.exclusive:
		return ""
	}
	if first := x.first(k, p); first != p {
		return fmt.Sprintf("volume claim %s can be used by one pod at a time, and pod %s uses it", use.Name, first.Name)
	}
	return ""
}

// first returns the pod to which a claim for one pod at a time belongs, as p sees it:
// the oldest of the others that are placed, else p if it is placed, else the oldest of p
// and those that could be placed.
func (x *Index) first(k types.NamespacedName, p *Pod) *Pod {
	best := p
	for _, u := range x.users[k] {
		switch o := &u.Pod; {
		case o.UID == p.UID:
		case o.Placed:
			if best == p || !best.Placed || older(o, best) {
				best = o
			}
		case best.Placed || o.Blocked:
		case older(o, best):
			best = o
		}
	}
	return best
}

func older(a, b *Pod) bool {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID)) < 0
}

// keys lists the claims of a pod.
func keys(p *Pod) []types.NamespacedName {
	out := make([]types.NamespacedName, len(p.Claims))
	for i, c := range p.Claims {
		out[i] = types.NamespacedName{Namespace: p.Namespace, Name: c.Name}
	}
	return out
}

func key(c *Claim) types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
}
