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
	"maps"
	"slices"
	"strings"
	"unique"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/internal/fit"
	"github.com/muster-sched/muster/kube/fair"
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
	// Ours is set if the engine places it: other pods stay where they are. Placed is set if it has a node.
	Ours, Placed bool
	// Refused is set if its namespace has no room for what its terms select elsewhere: it must not be placed.
	Refused bool

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
	// having has the sorts by their value of a label, for the labels that selectors ask
	// for: most selectors ask for one value of one label.
	having map[string]*having
	// selected has what terms select, by name. named has it by what a pod must have to be
	// among them: no pod is compared with all that tenants select. Anywhere is how much of
	// it may be in any namespace.
	selected map[string]*selected
	named    map[place]map[*selected]bool
	anywhere int
	ports    map[string]*port // by name
	// namespaces has their labels.
	namespaces map[string]map[string]string
	budgets    map[string]map[string]*Budget // by namespace and name
	// elsewhere bounds what terms select in other namespaces, by name; refused are the pods that wait for that.
	elsewhere *fair.Allowance[string]
	refused   map[types.UID]*Pod
	now       core.Time // of the last call of Work
	most      struct{ sorts, selected, named, having int }
}

// A selector of pods in other namespaces is a label of each that it selects, and where it asks for no label that they have, each is compared
// with it. So these have a bound.
const (
	// MaxElsewhere is how many different selectors of pods in other namespaces the terms of a namespace's pods have at most.
	MaxElsewhere = 100
	// linger is how long one counts after the last pod that had it.
	linger = 10 * 60 * core.Second
)

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

// having is the sorts by their value of one label, and how many selectors ask for it.
type having struct {
	by        map[string]map[*sort]bool
	selectors int
}

// place is a namespace, "" for any, and a label with a value, or with any; without a label for any labels.
type place struct {
	namespace, key, value string
	any                   bool
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
		sorts: map[sortKey]*sort{}, by: map[string]map[*sort]bool{}, having: map[string]*having{},
		selected: map[string]*selected{}, named: map[place]map[*selected]bool{}, ports: map[string]*port{},
		namespaces: map[string]map[string]string{}, budgets: map[string]map[string]*Budget{},
		elsewhere: fair.NewAllowance(MaxElsewhere, linger, func(string) {}), refused: map[types.UID]*Pod{},
	}
}

// Len returns how many kinds of pods, selectors, labels in these and ports are known.
func (x *Index) Len() int {
	return len(x.sorts) + len(x.selected) + len(x.named) + len(x.having) + x.anywhere + len(x.ports)
}

// Fit gives the memory back that labels and selectors had which are gone. It has to be called from time to time.
func (x *Index) Fit() {
	x.sorts, x.having = fit.Map(x.sorts, &x.most.sorts), fit.Map(x.having, &x.most.having)
	x.selected, x.named = fit.Map(x.selected, &x.most.selected), fit.Map(x.named, &x.most.named)
}

// ObservePod records a pod that is new. The change is one of other pods: those that it
// is the first to select, and those of other schedulers on a port that it is the first
// of ours to take.
func (x *Index) ObservePod(p *Pod) Change {
	changed := changes{}
	p.wants = wantsOf(p)
	x.file(p)
	x.addTerms(p, changed)
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

// addTerms records the terms of a pod, unless the namespace has no room for those of a pod that has no node.
func (x *Index) addTerms(p *Pod, changed changes) {
	p.Refused = false
	if n := x.further(p); n > 0 && n > x.elsewhere.Room(p.Namespace) && !p.Placed {
		p.Refused, x.refused[p.UID] = true, p
		x.elsewhere.Wait(p.Namespace, p.UID)
		return
	}
	if x.refused[p.UID] != nil {
		delete(x.refused, p.UID)
		x.elsewhere.Leave(p.Namespace, p.UID)
		changed[p.UID] = true
	}
	for i := range p.Terms {
		t := &p.Terms[i]
		if p.selectsElsewhere(t) {
			x.elsewhere.Use(p.Namespace, t.Peers.Name)
		}
		x.addTerm(t, changed)
	}
}

// further is how many selectors of pods in other namespaces a pod has that do not count for its namespace.
func (x *Index) further(p *Pod) int {
	var names []string
	for i := range p.Terms {
		if t := &p.Terms[i]; p.selectsElsewhere(t) && !x.elsewhere.Has(p.Namespace, t.Peers.Name) && !slices.Contains(names, t.Peers.Name) {
			names = append(names, t.Peers.Name)
		}
	}
	return len(names)
}

// selectsElsewhere reports whether a term of the pod selects pods of other namespaces.
func (p *Pod) selectsElsewhere(t *translate.Term) bool {
	return t.Peers.ByLabel || slices.ContainsFunc(t.Peers.Namespaces, func(n string) bool { return n != p.Namespace })
}

// Place records that a pod has a node, which it was given elsewhere: what its terms say counts now.
func (x *Index) Place(p *Pod) Change {
	changed := changes{}
	if p.Placed = true; p.Refused {
		x.addTerms(p, changed)
	}
	return changed.sorted()
}

// Work forgets what has lingered, and takes in the terms of pods for which there is room now. It returns when it has to be called again.
func (x *Index) Work(now core.Time) (Change, core.Time) {
	x.now = max(x.now, now)
	changed := changes{}
	pods, next := x.elsewhere.Admit(x.now)
	for _, uid := range pods {
		x.addTerms(x.refused[uid], changed)
	}
	return changed.sorted(), next
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
	if p.Refused {
		delete(x.refused, p.UID)
		x.elsewhere.Leave(p.Namespace, p.UID)
	}
	for i := 0; i < len(p.Terms) && !p.Refused; i++ {
		s := x.selected[p.Terms[i].Peers.Name]
		if p.selectsElsewhere(&p.Terms[i]) {
			x.elsewhere.Release(p.Namespace, s.Name, false, x.now)
		}
		if s.terms--; s.terms == 0 {
			x.deselect(s)
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
	if x.anywhere > 0 {
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
		for _, at := range s.where() {
			put(x.named, at, s)
		}
		if s.ByLabel {
			x.anywhere++
		}
	}
	t.Peers = s.Peers // pods of one template share it
	if s.terms++; s.terms > 1 {
		return
	}
	// The sorts that may match, from the narrowest list there is.
	var among []map[*sort]bool
	if key, values, ok := s.Pair(); ok {
		by := x.with(key)
		by.selectors++
		for _, v := range values {
			among = append(among, by.by[v])
		}
		if values == nil {
			among = slices.AppendSeq(among, maps.Values(by.by))
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

// deselect forgets what no term selects any more.
func (x *Index) deselect(s *selected) {
	delete(x.selected, s.Name)
	for _, at := range s.where() {
		cut(x.named, at, s)
	}
	if s.ByLabel {
		x.anywhere--
	}
	if key, _, ok := s.Pair(); ok {
		by := x.having[key]
		if by.selectors--; by.selectors == 0 {
			delete(x.having, key)
		}
	}
}

// with returns the sorts by their value of a label.
func (x *Index) with(key string) *having {
	h := x.having[key]
	if h == nil {
		h = &having{by: map[string]map[*sort]bool{}}
		x.having[key] = h
		for _, s := range x.sorts {
			if v, ok := s.all()[key]; ok {
				put(h.by, v, s)
			}
		}
	}
	return h
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
		for key, v := range s.all() {
			if h := x.having[key]; h != nil {
				put(h.by, v, s)
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
	for key, v := range s.all() {
		if h := x.having[key]; h != nil {
			cut(h.by, v, s)
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
func (s *selected) where() (list []place) {
	namespaces := s.Namespaces
	if s.ByLabel {
		namespaces = []string{""}
	}
	key, values, _ := s.Pair()
	for _, n := range namespaces {
		for _, v := range values {
			list = append(list, place{namespace: n, key: key, value: v})
		}
		if values == nil {
			list = append(list, place{namespace: n, key: key, any: true})
		}
	}
	return list
}

func wantsOf(p *Pod) wants {
	var b strings.Builder
	for i := range p.Terms {
		t := &p.Terms[i]
		fmt.Fprintf(&b, "%q %q %v %d %d %v %v %d %v\n", t.Peers.Name, t.Key, t.Anti, t.MaxSkew, t.MinDomains, t.AnyTaint, t.AnyLabel, t.Weight, t.Group)
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

func put[A, K comparable](by map[A]map[K]bool, at A, k K) {
	if by[at] == nil {
		by[at] = map[K]bool{}
	}
	by[at][k] = true
}

func cut[A, K comparable](by map[A]map[K]bool, at A, k K) {
	if delete(by[at], k); len(by[at]) == 0 {
		delete(by, at)
	}
}
