package tables

import (
	"reflect"
	"slices"
	"time"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
)

// Quarantine is why a job is left out, and its requests at that time.
type Quarantine struct {
	Message string
	Asked   []Wish
	Group   any // what its PodGroup says
	// Until is when the quarantine ends at the earliest; Changed says that it ends then.
	Until   core.Time
	Changed bool
	// Untold says that the engine must not even know its pods.
	Untold bool
}

// Wish is the request of pods that are alike.
type Wish struct {
	pods       int
	request    core.Request
	attributes translate.Attributes
	membership translate.Membership
	terms      []translate.Term
	priority   int32
}

// Wishes returns the requests of the group's pods, and how many pods have each.
func (g *Group) Wishes() []Wish {
	var list []Wish
	for _, p := range g.Pods {
		w := Wish{0, p.Object.Request, p.Object.Attributes, p.Object.Membership, p.Object.Terms, p.Object.Priority}
		// A checkpoint is progress and no other wish: a job that writes them would leave its
		// quarantine by itself.
		w.attributes.LastCheckpoint = time.Time{}
		at := slices.IndexFunc(list, func(x Wish) bool { return x.alike(w) })
		if at < 0 {
			at, list = len(list), append(list, w)
		}
		list[at].pods++
	}
	return list
}

// alike reports whether pods ask for the same, however many do.
func (w Wish) alike(x Wish) bool {
	w.pods = x.pods
	return reflect.DeepEqual(&w, &x)
}

// SameWishes reports whether two lists are equal but for their order.
func SameWishes(a, b []Wish) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(w Wish) bool {
		return !slices.ContainsFunc(b, func(x Wish) bool { return x.pods == w.pods && x.alike(w) })
	})
}

// GroupWish is what the group's PodGroup says.
func (t *Tables) GroupWish(g *Group) any {
	pg := t.PodGroupOf(g)
	if pg == nil {
		return nil
	}
	priority := int32(0)
	if pg.Priority != nil {
		priority = *pg.Priority
	}
	return [...]any{pg.Min, pg.Attributes, pg.Required, pg.Whole, priority}
}

// Untold reports whether a node has pods that the engine must not know.
func (n *Node) Untold() bool {
	for _, p := range n.Pods {
		if p.Group != nil && p.Group.Quarantine != nil && p.Group.Quarantine.Untold {
			return true
		}
	}
	return false
}
