package fair

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
)

// Allowance bounds how many different things the pods of each namespace use at a time. A thing counts as long as a pod uses it, and
// longer if it was not free: so that pods that come and go use no more. Pods for which there is no room wait for it. It is not safe
// for concurrent use.
type Allowance[K comparable] struct {
	most      int
	lingers   core.Time
	ended     func(K)
	accounts  map[string]*account[K]
	lingering int // how many things no pod uses
	came      uint64
	sweepAt   core.Time
}

// account is what the pods of a namespace use.
type account[K comparable] struct {
	charges map[K]*charge
	// waiting are the pods that wait for room, by when they came; room says that there may be some.
	waiting map[types.UID]uint64
	room    bool
}

// charge is a thing that counts.
type charge struct {
	uses  int
	until core.Time // it lingers, if there are none
}

// sweepInterval is the time between two looks at what has lingered long enough.
const sweepInterval = 60 * core.Second

// NewAllowance returns an allowance of most things for each namespace. What no pod uses lingers for that time, or up to a minute longer. ended
// is called when a thing counts for a namespace no longer.
func NewAllowance[K comparable](most int, lingers core.Time, ended func(K)) *Allowance[K] {
	return &Allowance[K]{most: most, lingers: lingers, ended: ended, accounts: map[string]*account[K]{}}
}

// Has reports whether a thing counts for a namespace.
func (a *Allowance[K]) Has(namespace string, k K) bool {
	o := a.accounts[namespace]
	return o != nil && o.charges[k] != nil
}

// Len is how many things count for a namespace.
func (a *Allowance[K]) Len(namespace string) int {
	if o := a.accounts[namespace]; o != nil {
		return len(o.charges)
	}
	return 0
}

// Room is how many things more a namespace may use, less than 0 where pods that must not wait use too many.
func (a *Allowance[K]) Room(namespace string) int { return a.most - a.Len(namespace) }

// Use records that a pod of a namespace uses a thing, whether or not there is room. It reports whether the thing counts from now on.
func (a *Allowance[K]) Use(namespace string, k K) bool {
	o := a.account(namespace)
	c := o.charges[k]
	first := c == nil
	switch {
	case first:
		c = &charge{}
		o.charges[k] = c
	case c.uses == 0:
		a.lingering--
	}
	c.uses++
	return first
}

// Release records that a pod of a namespace no longer uses a thing. If none does, it counts no longer if it was free, and otherwise lingers.
func (a *Allowance[K]) Release(namespace string, k K, free bool, now core.Time) {
	o := a.accounts[namespace]
	c := o.charges[k]
	if c.uses--; c.uses > 0 {
		return
	}
	if free {
		a.end(namespace, o, k)
		return
	}
	c.until = now + a.lingers
	a.lingering++
}

// end ends that a thing counts for a namespace.
func (a *Allowance[K]) end(namespace string, o *account[K], k K) {
	delete(o.charges, k)
	o.room = true
	a.tidy(namespace, o)
	a.ended(k)
}

// Wait records that a pod of a namespace waits for room.
func (a *Allowance[K]) Wait(namespace string, pod types.UID) {
	o := a.account(namespace)
	if _, waits := o.waiting[pod]; !waits {
		a.came++
		o.waiting[pod] = a.came
	}
}

// Leave records that a pod of a namespace does not wait for room.
func (a *Allowance[K]) Leave(namespace string, pod types.UID) {
	if o := a.accounts[namespace]; o != nil {
		delete(o.waiting, pod)
		a.tidy(namespace, o)
	}
}

func (a *Allowance[K]) account(namespace string) *account[K] {
	o := a.accounts[namespace]
	if o == nil {
		o = &account[K]{charges: map[K]*charge{}, waiting: map[types.UID]uint64{}}
		a.accounts[namespace] = o
	}
	return o
}

func (a *Allowance[K]) tidy(namespace string, o *account[K]) {
	if len(o.charges)+len(o.waiting) == 0 {
		delete(a.accounts, namespace)
	}
}

// Admit ends what has lingered long enough, and returns which pods may try again, first those of a namespace that have waited longest: no
// more than there may be room for. next is when it has to be called again.
func (a *Allowance[K]) Admit(now core.Time) (pods []types.UID, next core.Time) {
	if a.lingering > 0 && now >= a.sweepAt {
		a.sweep(now)
		a.sweepAt = now + sweepInterval
	}
	for _, namespace := range slices.Sorted(maps.Keys(a.accounts)) {
		o := a.accounts[namespace]
		n := min(a.Room(namespace), len(o.waiting))
		if !o.room || n <= 0 {
			continue
		}
		o.room = false
		list := slices.SortedFunc(maps.Keys(o.waiting), func(i, j types.UID) int { return cmp.Compare(o.waiting[i], o.waiting[j]) })
		for _, pod := range list[:n] {
			a.came++
			o.waiting[pod] = a.came // if there is no room for it after all, others come first
		}
		pods = append(pods, list[:n]...)
	}
	if next = core.Never; a.lingering > 0 {
		next = a.sweepAt
	}
	return pods, next
}

func (a *Allowance[K]) sweep(now core.Time) {
	for namespace, o := range a.accounts {
		for k, c := range o.charges {
			if c.uses == 0 && now >= c.until {
				a.lingering--
				a.end(namespace, o, k)
			}
		}
	}
}

// Empty reports whether nothing counts, and no pod waits.
func (a *Allowance[K]) Empty() bool { return len(a.accounts) == 0 && a.lingering == 0 }
