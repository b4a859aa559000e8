// Package peers determines what pods require of the pods around them, and which pods are
// protected by disruption budgets.
//
// The engine knows labels of roles. So each selector that a live pod uses is a label, and
// the roles carry it whose pods match. [Index] observes pods, namespaces and
// PodDisruptionBudgets, each as it is now. An observation returns the pods that it
// changed something for ([Change]); [Index.Look] and [Pod.Kept] are the answers. The
// index knows nothing about jobs or the engine, and does no I/O.
package peers

import (
	"fmt"
	"slices"
	"strings"
	"unique"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/kube/translate"
)

// Pod is what the index knows about a pod. The caller keeps it for the index, and must
// not change it.
type Pod struct {
	UID       types.UID
	Namespace string
	Labels    translate.Labels
	Terms     []translate.Term // equal peers in them are made one object
	Ports     []translate.Port // of its node
	// Ours is set if the engine places it: other pods stay where they are.
	Ours bool

	sort  *sort
	wants wants
}

// Change lists the pods for which an observation changed something, in ascending order.
// For those it changed which labels and terms they have, or whether a budget keeps them.
type Change []types.UID

// Index knows pods as other pods see them. It is not safe for concurrent use.
type Index struct {
	// sorts has the pods that are alike: of one namespace, with the same labels.
	sorts map[sortKey]*sort
	// by has the sorts of each namespace.
	by map[string]map[*sort]bool
	// having has the sorts by their value of a label, for the labels that selectors
	// have asked for: most selectors ask for one value of one label.
	having map[string]map[string]map[*sort]bool
	// selected has what terms select, by name. named has it by the namespaces in which
	// the pods may be, and under "" where they may be in any.
	selected map[string]*selected
	named    map[string]map[*selected]bool
	ports    map[string]*port // by name
	// namespaces has their labels.
	namespaces map[string]map[string]string
	budgets    map[string]map[string]*Budget // by namespace and name
}

type sortKey struct {
	namespace string
	labels    translate.Labels
}

// sort is pods that are alike to all selectors.
type sort struct {
	sortKey
	set  labels.Set // nil until it is asked for
	pods map[types.UID]*Pod
	// kept is set if disruption budgets prevent the eviction of such pods now.
	kept bool
}

// selected is the pods that terms of live pods select.
type selected struct {
	*translate.Peers
	terms int // how many
}

// port is a port of nodes.
type port struct {
	ours   int // pods of ours that take it
	others map[types.UID]*Pod
}

// wants is what a pod requires of others, in words.
type wants = unique.Handle[string]

// New returns an empty index.
func New() *Index {
	return &Index{
		sorts: map[sortKey]*sort{}, by: map[string]map[*sort]bool{}, having: map[string]map[string]map[*sort]bool{},
		selected: map[string]*selected{}, named: map[string]map[*selected]bool{}, ports: map[string]*port{},
		namespaces: map[string]map[string]string{}, budgets: map[string]map[string]*Budget{},
	}
}

// Len returns how many kinds of pods, selectors and ports are known.
func (x *Index) Len() int { return len(x.sorts) + len(x.selected) + len(x.ports) }

// ObservePod records a pod that is new. The change is one of other pods: those that it
// is the first to select, and those of other schedulers on a port that it is the first
// of ours to take.
func (x *Index) ObservePod(p *Pod) Change {
	changed := changes{}
	p.wants = wantsOf(p)
	x.file(p)
	for i := range p.Terms {
		x.addTerm(&p.Terms[i], changed)
	}
	for _, q := range p.Ports {
		on := x.ports[q.String()]
		if on == nil {
			on = &port{others: map[types.UID]*Pod{}}
			x.ports[q.String()] = on
		}
		if !p.Ours {
			on.others[p.UID] = p
		} else if on.ours++; on.ours == 1 {
			changed.add(on.others)
		}
	}
	delete(changed, p.UID)
	return changed.sorted()
}

// ObserveLabels records that a pod has other labels. The change is one of that pod.
func (x *Index) ObserveLabels(p *Pod, l translate.Labels) Change {
	if p.Labels == l {
		return nil
	}
	x.unfile(p)
	p.Labels = l
	x.file(p)
	return Change{p.UID}
}

// ForgetPod records that a pod is gone. Nothing changes for others: a label for which
// no pod asks any more does no harm.
func (x *Index) ForgetPod(p *Pod) {
	x.unfile(p)
	for i := range p.Terms {
		s := x.selected[p.Terms[i].Peers.Name]
		if s.terms--; s.terms == 0 {
			delete(x.selected, s.Name)
			for _, n := range s.where() {
				cut(x.named, n, s)
			}
		}
	}
	for _, q := range p.Ports {
		on := x.ports[q.String()]
		if delete(on.others, p.UID); p.Ours {
			on.ours--
		}
		if on.ours == 0 && len(on.others) == 0 {
			delete(x.ports, q.String())
		}
	}
}

// ObserveNamespace records the present labels of a namespace.
func (x *Index) ObserveNamespace(name string, l map[string]string) Change {
	x.namespaces[name] = l
	changed := changes{}
	if len(x.named[""]) > 0 {
		for s := range x.by[name] {
			changed.add(s.pods)
		}
	}
	return changed.sorted()
}

// ForgetNamespace records that a namespace was deleted, with everything in it.
func (x *Index) ForgetNamespace(name string) { delete(x.namespaces, name) }

// addTerm records a term of a pod. If no pod had a term that selects the same before,
// the pods that it selects have a label more.
func (x *Index) addTerm(t *translate.Term, changed changes) {
	s := x.selected[t.Peers.Name]
	if s == nil {
		s = &selected{Peers: t.Peers}
		x.selected[s.Name] = s
		for _, n := range s.where() {
			put(x.named, n, s)
		}
	}
	t.Peers = s.Peers // pods of one template share it
	if s.terms++; s.terms > 1 {
		return
	}
	// The sorts that may match, from the narrowest list there is.
	var among []map[*sort]bool
	if key, values, ok := s.Pair(); ok {
		for _, v := range values {
			among = append(among, x.with(key)[v])
		}
	} else if s.ByLabel {
		for _, by := range x.by {
			among = append(among, by)
		}
	} else {
		for _, n := range s.Namespaces {
			among = append(among, x.by[n])
		}
	}
	for _, list := range among {
		for o := range list {
			if x.selects(s, o) {
				changed.add(o.pods)
			}
		}
	}
}

// with returns the sorts by their value of a label.
func (x *Index) with(key string) map[string]map[*sort]bool {
	by := x.having[key]
	if by == nil {
		by = map[string]map[*sort]bool{}
		x.having[key] = by
		for _, s := range x.sorts {
			if v, ok := s.all()[key]; ok {
				put(by, v, s)
			}
		}
	}
	return by
}

// file puts a pod with those that have the same labels.
func (x *Index) file(p *Pod) {
	k := sortKey{p.Namespace, p.Labels}
	s := x.sorts[k]
	if s == nil {
		s = &sort{sortKey: k, pods: map[types.UID]*Pod{}}
		s.kept = x.keeps(s)
		x.sorts[k] = s
		put(x.by, k.namespace, s)
		for key, by := range x.having {
			if v, ok := s.all()[key]; ok {
				put(by, v, s)
			}
		}
	}
	s.pods[p.UID], p.sort = p, s
}

func (x *Index) unfile(p *Pod) {
	s := p.sort
	if delete(s.pods, p.UID); len(s.pods) > 0 {
		return
	}
	delete(x.sorts, s.sortKey)
	for key, by := range x.having {
		if v, ok := s.all()[key]; ok {
			cut(by, v, s)
		}
	}
	cut(x.by, s.namespace, s)
}

// all returns the labels of the pods.
func (s *sort) all() labels.Set {
	if s.set == nil {
		s.set = s.labels.Set()
	}
	return s.set
}

func (x *Index) selects(s *selected, o *sort) bool {
	return s.Match(o.namespace, x.namespaces[o.namespace], o.all())
}

// where lists the keys of Index.named.
func (s *selected) where() []string {
	if s.ByLabel {
		return []string{""}
	}
	return s.Namespaces
}

func wantsOf(p *Pod) wants {
	var b strings.Builder
	for i := range p.Terms {
		t := &p.Terms[i]
		fmt.Fprintf(&b, "%q %q %v %d %d\n", t.Peers.Name, t.Key, t.Anti, t.MaxSkew, t.MinDomains)
	}
	for _, q := range p.Ports {
		fmt.Fprintf(&b, "%v %q\n", q, q.Address)
	}
	return unique.Make(b.String())
}

// changes collects a [Change].
type changes map[types.UID]bool

func (c changes) add(pods map[types.UID]*Pod) {
	for uid := range pods {
		c[uid] = true
	}
}

func (c changes) sorted() Change {
	if len(c) == 0 {
		return nil
	}
	list := make(Change, 0, len(c))
	for uid := range c {
		list = append(list, uid)
	}
	slices.Sort(list)
	return list
}

func put[K comparable](by map[string]map[K]bool, at string, k K) {
	if by[at] == nil {
		by[at] = map[K]bool{}
	}
	by[at][k] = true
}

func cut[K comparable](by map[string]map[K]bool, at string, k K) {
	if delete(by[at], k); len(by[at]) == 0 {
		delete(by, at)
	}
}
