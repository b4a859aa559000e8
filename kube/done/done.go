// Package done counts the pods that have succeeded and still exist, by the group that they were
// of. No other pods are made for them: a gang that lost a pod when some had succeeded must not
// wait for as many as it had.
package done

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/kube/translate"
)

// Index has the pods that have succeeded. It is not safe for concurrent use.
type Index struct {
	pods   map[types.UID]place
	counts map[place]int
}

// place is a role in a group.
type place struct {
	group translate.Group
	role  string
}

// New returns an index without pods.
func New() *Index {
	x := &Index{}
	x.Reset()
	return x
}

// Reset forgets all pods.
func (x *Index) Reset() { x.pods, x.counts = map[types.UID]place{}, map[place]int{} }

// Observe records that a pod has succeeded.
func (x *Index) Observe(uid types.UID, as *translate.Membership) {
	x.Forget(uid)
	p := place{as.Group, as.Role}
	x.pods[uid] = p
	x.count(p, 1)
}

// Forget records that a pod is gone.
func (x *Index) Forget(uid types.UID) {
	if p, ok := x.pods[uid]; ok {
		delete(x.pods, uid)
		x.count(p, -1)
	}
}

// count counts a pod of a role, and of its group.
func (x *Index) count(p place, by int) {
	keys := []place{p}
	if p.role != "" {
		keys = append(keys, place{group: p.group})
	}
	for _, k := range keys {
		if x.counts[k] += by; x.counts[k] == 0 {
			delete(x.counts, k)
		}
	}
}

// Count returns how many pods of a role of a group have succeeded, of all roles if it is empty.
func (x *Index) Count(group translate.Group, role string) int { return x.counts[place{group, role}] }

// Len returns the number of pods.
func (x *Index) Len() int { return len(x.pods) }
