package peers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
)

// pod makes a pod of ours with labels, as "k=v k=v".
func pod(t testing.TB, name, labels string, with ...func(*v1.Pod)) *Pod {
	t.Helper()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: set(labels)}}
	p.Spec.SchedulerName = "ours"
	p.Spec.Containers = []v1.Container{{}}
	p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{}, PodAffinity: &v1.PodAffinity{}}
	for _, f := range with {
		f(p)
	}
	terms, err := translate.Terms(p)
	if err != nil {
		t.Fatal(err)
	}
	return &Pod{
		UID: p.UID, Namespace: p.Namespace, Labels: translate.LabelsOf(p.Labels), Terms: terms, Ports: translate.Ports(p),
		Ours: p.Spec.SchedulerName == "ours",
	}
}

func set(labels string) map[string]string {
	out := map[string]string{}
	for _, pair := range strings.Fields(labels) {
		k, v, _ := strings.Cut(pair, "=")
		out[k] = v
	}
	return out
}

func foreign(p *v1.Pod) { p.Spec.SchedulerName = "another" }

func in(namespace string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Namespace = namespace }
}

// term selects pods with labels: with a value, or, without one, with any.
func term(labels string) v1.PodAffinityTerm {
	x := v1.PodAffinityTerm{TopologyKey: "host", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{}}}
	for _, pair := range strings.Fields(labels) {
		if k, v, ok := strings.Cut(pair, "="); ok {
			x.LabelSelector.MatchLabels[k] = v
		} else {
			exists := metav1.LabelSelectorRequirement{Key: k, Operator: metav1.LabelSelectorOpExists}
			x.LabelSelector.MatchExpressions = append(x.LabelSelector.MatchExpressions, exists)
		}
	}
	return x
}

func apart(labels string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		a := p.Spec.Affinity.PodAntiAffinity
		a.RequiredDuringSchedulingIgnoredDuringExecution = append(a.RequiredDuringSchedulingIgnoredDuringExecution, term(labels))
	}
}

// near is among pods with a label, in namespaces with the labels of a team.
func near(label, team string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		x := term(label)
		x.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": team}}
		a := p.Spec.Affinity.PodAffinity
		a.RequiredDuringSchedulingIgnoredDuringExecution = append(a.RequiredDuringSchedulingIgnoredDuringExecution, x)
	}
}

func hostPort(n int32) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, v1.ContainerPort{HostPort: n, Protocol: v1.ProtocolTCP})
	}
}

// budget lets so many pods go that have labels.
func budget(name string, allowed int32, labels string) *Budget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: set(labels)}
	b.Status.DisruptionsAllowed = allowed
	return BudgetOf(b)
}

func level(key string) (string, bool) { return "level-" + key, key == "host" }

// says fails the test unless a change is of these pods, separated by spaces.
func says(t *testing.T, c Change, pods string) {
	t.Helper()
	var got []string
	for _, uid := range c {
		got = append(got, string(uid))
	}
	if s := strings.Join(got, " "); s != pods {
		t.Errorf("changed %q, expected %q", s, pods)
	}
}

func TestPodsThatTermsSelect(t *testing.T) {
	x := New()
	web, db := pod(t, "web", "app=web"), pod(t, "db", "app=db")
	says(t, x.ObservePod(web), "")
	says(t, x.ObservePod(db), "")
	if v := x.Look(level); !v.Empty() || len(v.Of(web).Labels) > 0 {
		t.Error("a label for which no pod asks")
	}
	a, b := pod(t, "a", "app=web", apart("app=web")), pod(t, "b", "", apart("app=web"))
	says(t, x.ObservePod(a), "web") // and a itself, which is new
	says(t, x.ObservePod(b), "")    // they have the label already
	v := x.Look(level)
	if got := fmt.Sprint(*v.Of(web), *v.Of(db), *v.Of(a)); got != "{[among: ns/app=web] [] []} {[] [] []} {[among: ns/app=web] [{level-host among: ns/app=web true 0 0 false false}] []}" {
		t.Errorf("labels and terms: %s", got)
	}
	if v.Of(a) == v.Of(b) || a.Terms[0].Peers != b.Terms[0].Peers {
		t.Error("a and b are not alike, but select the same")
	}
	says(t, x.ObserveLabels(db, translate.LabelsOf(set("app=web"))), "db")
	says(t, x.ObserveLabels(db, translate.LabelsOf(set("app=web"))), "")
	if got := x.Look(level).Of(db).Labels; len(got) != 1 {
		t.Errorf("db has labels %q, expected that of web", got)
	}
	x.ForgetPod(a)
	if x.Look(level).Empty() {
		t.Error("b asks for it still")
	}
	x.ForgetPod(b)
	if !x.Look(level).Empty() {
		t.Error("no pod asks for it any more")
	}
}

// Pods of other schedulers matter when they keep ours off, or ours look for them.
func TestPodsOfOtherSchedulers(t *testing.T) {
	x := New()
	agent, guard := pod(t, "agent", "app=agent", foreign, hostPort(80)), pod(t, "guard", "", foreign, apart("app=web"), near("app=x", "y"))
	x.ObservePod(agent)
	x.ObservePod(guard)
	if x.Matters(agent) || !x.Matters(guard) {
		t.Error("guard alone matters")
	}
	if got := x.Look(level).Of(guard).Terms; len(got) != 1 || !got[0].Anti {
		t.Errorf("guard has terms %+v: where it must be is settled, whom it keeps off is not", got)
	}
	p, q := pod(t, "p", "", hostPort(80)), pod(t, "q", "", hostPort(80))
	says(t, x.ObservePod(p), "agent")
	says(t, x.ObservePod(q), "")
	if !x.Matters(agent) {
		t.Error("agent has a port that p needs")
	}
	x.ForgetPod(p)
	x.ForgetPod(q)
	if x.Matters(agent) {
		t.Error("no pod of ours needs the port of agent")
	}
	says(t, x.ObservePod(pod(t, "reader", "", apart("app=agent"))), "agent")
	if !x.Matters(agent) {
		t.Error("reader looks for agent")
	}
}

func TestLabelsOfNamespaces(t *testing.T) {
	x := New()
	far := pod(t, "far", "app=web", in("other"))
	x.ObservePod(far)
	says(t, x.ObserveNamespace("other", set("team=blue")), "") // no term asks
	says(t, x.ObservePod(pod(t, "p", "", near("app=web", "red"))), "")
	says(t, x.ObserveNamespace("other", set("team=red")), "far")
	if len(x.Look(level).Of(far).Labels) != 1 {
		t.Error("far is not selected by the label of its namespace")
	}
	x.ForgetNamespace("other")
	if len(x.Look(level).Of(far).Labels) != 0 {
		t.Error("far is selected by a label that is gone")
	}
}

func TestBudgets(t *testing.T) {
	x := New()
	a, b := pod(t, "a", "app=a"), pod(t, "b", "app=b")
	x.ObservePod(a)
	x.ObservePod(b)
	says(t, x.ObserveBudget(budget("x", 1, "app=a")), "")
	says(t, x.ObserveBudget(budget("x", 0, "app=a")), "a")
	says(t, x.ObserveBudget(budget("x", 0, "app=a")), "")
	if !a.Kept() || b.Kept() || !x.HasBudgets("ns") || x.HasBudgets("other") {
		t.Error("a alone is kept")
	}
	late := pod(t, "late", "app=a")
	says(t, x.ObservePod(late), "")
	if !late.Kept() {
		t.Error("a pod that comes later is kept too")
	}
	says(t, x.ObserveBudget(budget("x", 0, "app=b")), "a b late")
	says(t, x.ObserveBudget(budget("y", 5, "app=a")), "")
	says(t, x.ObserveBudget(budget("z", 5, "app=a")), "a late") // two select them
	says(t, x.ReplaceBudgets([]*Budget{budget("y", 5, "app=a")}), "a b late")
	says(t, x.ReplaceBudgets([]*Budget{budget("y", 0, "app=a")}), "a late")
	says(t, x.ForgetBudget(budget("y", 0, "app=a")), "a late")
	if a.Kept() || x.HasBudgets("ns") || len(x.budgets) > 0 {
		t.Error("no budget is left")
	}
}

// What an observation reports is what it changed, and the answers are those of an index
// that learned the same at once. Nothing is left of pods that are gone.
func TestChangesAreWhatChanged(t *testing.T) {
	type known struct {
		surroundings  Surroundings
		matters, kept bool
	}
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 2))
		label := func() string { return fmt.Sprintf("app=%d tier=%d", r.IntN(3), r.IntN(2)) }
		x, pods := New(), map[types.UID]*Pod{}
		namespaces, budgets := map[string]map[string]string{}, map[string]*Budget{}
		answers := func(x *Index, pods map[types.UID]*Pod) map[types.UID]known {
			v, out := x.Look(level), map[types.UID]known{}
			for uid, p := range pods {
				out[uid] = known{*v.Of(p), x.Matters(p), p.Kept()}
			}
			return out
		}
		for range 150 {
			before := answers(x, pods)
			var c Change
			forgot := false
			name := fmt.Sprint("p", r.IntN(8))
			p := pods[types.UID(name)]
			switch r.IntN(6) {
			case 0, 1, 2:
				if p != nil && r.IntN(2) == 0 {
					delete(pods, p.UID)
					x.ForgetPod(p)
					forgot = true
				} else if p != nil {
					c = x.ObserveLabels(p, translate.LabelsOf(set(label())))
				} else {
					var with []func(*v1.Pod)
					for _, f := range []func(*v1.Pod){apart(fmt.Sprint("app=", r.IntN(3))), apart("tier"), near(fmt.Sprint("tier=", r.IntN(2)), "red"), hostPort(80), foreign, in("other")} {
						if r.IntN(3) == 0 {
							with = append(with, f)
						}
					}
					p = pod(t, name, label(), with...)
					pods[p.UID] = p
					c = x.ObservePod(p)
				}
			case 3:
				n := []string{"ns", "other"}[r.IntN(2)]
				namespaces[n] = map[string]string{"team": []string{"red", "blue"}[r.IntN(2)]}
				c = x.ObserveNamespace(n, namespaces[n])
			case 4:
				b := budget(fmt.Sprint("b", r.IntN(3)), r.Int32N(2), fmt.Sprint("app=", r.IntN(3)))
				budgets[b.Name] = b
				c = x.ObserveBudget(b)
			case 5:
				b := budget(fmt.Sprint("b", r.IntN(3)), 0, "app=0")
				delete(budgets, b.Name)
				c = x.ForgetBudget(b)
			}
			now := answers(x, pods)
			for uid, is := range now {
				was, there := before[uid]
				changed := there && (!is.surroundings.Equal(&was.surroundings) || is.matters != was.matters || is.kept != was.kept)
				if changed && !forgot && !slices.Contains(c, uid) {
					t.Fatalf("seed %d: %s changed from %+v to %+v, and is not reported", seed, uid, was, is)
				}
			}
			if !slices.IsSorted(c) {
				t.Fatalf("seed %d: %v is not in order", seed, c)
			}
			twin, same := New(), map[types.UID]*Pod{}
			for n, l := range namespaces {
				twin.ObserveNamespace(n, l)
			}
			for uid, p := range pods {
				same[uid] = &Pod{UID: p.UID, Namespace: p.Namespace, Labels: p.Labels, Terms: slices.Clone(p.Terms), Ports: p.Ports, Ours: p.Ours}
				twin.ObservePod(same[uid])
			}
			for _, b := range budgets {
				twin.ObserveBudget(b)
			}
			for _, p := range pods { // the lists by label leave out none that selects it
				var found []string
				for s := range x.selecting(p) {
					found = append(found, s.Name)
				}
				slices.Sort(found)
				var all []string
				for name, s := range x.selected {
					if x.selects(s, p.sort) {
						all = append(all, name)
					}
				}
				if slices.Sort(all); !slices.Equal(found, all) {
					t.Fatalf("seed %d: %s is selected by %q, found %q", seed, p.UID, all, found)
				}
			}
			for uid, want := range answers(twin, same) {
				if is := now[uid]; !is.surroundings.Equal(&want.surroundings) || is.matters != want.matters || is.kept != want.kept {
					t.Fatalf("seed %d: of %s %+v, expected %+v", seed, uid, is, want)
				}
			}
		}
		for _, p := range pods {
			x.ForgetPod(p)
		}
		if x.Len()+len(x.by)+len(x.named) > 0 {
			t.Fatalf("seed %d: left: %d, %d namespaces, %d selectors", seed, x.Len(), len(x.by), len(x.named))
		}
	}
}

// What tenants select costs others nothing: of ten thousand selectors in all namespaces, a pod
// is compared with those alone that ask for one of its labels, with a value or with any.
func TestSelectorsOfOthersCostNothing(t *testing.T) {
	for form, selects := range map[string]string{"key%d=v%d": "key7=v7", "key%d.%d": "key7.7=any"} {
		x := New()
		for i := range 10_000 {
			anywhere := term(fmt.Sprintf(form, i%100, i))
			anywhere.NamespaceSelector = &metav1.LabelSelector{}
			x.ObservePod(pod(t, fmt.Sprint("p", i), "", in("attacker"), func(p *v1.Pod) {
				p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = []v1.PodAffinityTerm{anywhere}
			}))
		}
		victim := pod(t, "victim", "app=web "+selects, in("victim"))
		x.ObservePod(victim)
		selecting, compared := 0, len(x.named[place{any: true}])
		for key, v := range victim.sort.all() {
			compared += len(x.named[place{"", key, v, false}]) + len(x.named[place{"", key, "", true}])
		}
		for range x.selecting(victim) {
			selecting++
		}
		if compared != 1 || selecting != 1 {
			t.Errorf("%s: it is compared with %d selectors, %d of them select it; expected 1 and 1", form, compared, selecting)
		}
	}
}

// everywhere selects the pods of all namespaces that do not have a value of a label.
func everywhere(not int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		x := term("")
		x.NamespaceSelector = &metav1.LabelSelector{}
		x.LabelSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "k", Operator: metav1.LabelSelectorOpNotIn, Values: []string{fmt.Sprint(not)}}}
		a := p.Spec.Affinity.PodAntiAffinity
		a.RequiredDuringSchedulingIgnoredDuringExecution = append(a.RequiredDuringSchedulingIgnoredDuringExecution, x)
	}
}

// However many selectors of pods elsewhere a namespace has, few are labels of those. Further pods wait until there is room; in its own
// namespace a pod may select as it likes.
func TestSelectorsElsewhere(t *testing.T) {
	const minute = 60 * core.Second
	x := New()
	victim := pod(t, "victim", "app=v", in("other"))
	x.ObservePod(victim)
	labels := func() int {
		return len(x.Look(func(string) (string, bool) { return "host", true }).Of(victim).Labels)
	}
	var pods []*Pod
	for k := range 3 * MaxElsewhere {
		p := pod(t, fmt.Sprint("p", k), "", everywhere(k))
		x.ObservePod(p)
		if pods = append(pods, p); p.Refused != (k >= MaxElsewhere) {
			t.Fatalf("pod %d is refused: %t", k, p.Refused)
		}
	}
	if n := labels(); n != MaxElsewhere {
		t.Errorf("a pod elsewhere has %d labels, expected %d", n, MaxElsewhere)
	}
	same, own := pod(t, "same", "", everywhere(0)), pod(t, "own", "", apart("a=b"))
	theirs := pod(t, "theirs", "", everywhere(3*MaxElsewhere), in("third"))
	placed := pod(t, "placed", "", everywhere(3*MaxElsewhere+1))
	placed.Placed = true
	for _, p := range []*Pod{same, own, theirs, placed} {
		if x.ObservePod(p); p.Refused {
			t.Errorf("pod %s is refused", p.UID)
		}
	}
	if n := labels(); n != MaxElsewhere+2 {
		t.Errorf("a pod elsewhere has %d labels, expected %d", n, MaxElsewhere+2)
	}

	// One that is given a node elsewhere counts, refused or not.
	late := pods[2*MaxElsewhere]
	if c := x.Place(late); late.Refused || !slices.Contains(c, "victim") {
		t.Errorf("a pod with a node is refused: %t; it changed %v", late.Refused, c)
	}

	// Two more than it may have, and four that go: there is room for two, ten minutes later.
	x.Work(minute)
	for _, p := range append(pods[:2:2], placed, late) {
		x.ForgetPod(p)
	}
	if c, _ := x.Work(10 * minute); len(c) > 0 {
		t.Errorf("%v have changed, though what is gone still counts", c)
	}
	x.ForgetPod(same)
	x.ForgetPod(pods[MaxElsewhere]) // it waited longest
	c, _ := x.Work(13 * minute)
	if want := (Change{"p101", "victim"}); len(c) < 2 || !slices.Contains(c, want[0]) || !slices.Contains(c, want[1]) || pods[MaxElsewhere+1].Refused || !pods[MaxElsewhere+3].Refused {
		t.Errorf("%v have changed, expected %v to be among them", c, want)
	}
	for _, p := range pods[2:] {
		if p != pods[MaxElsewhere] && p != late {
			x.ForgetPod(p)
		}
	}
	x.Work(24 * minute)
	x.Work(36 * minute)
	x.ForgetPod(theirs)
	x.ForgetPod(own)
	x.Work(60 * minute)
	if x.ForgetPod(victim); x.Len() != 0 || !x.elsewhere.Empty() || len(x.refused) != 0 {
		t.Errorf("%d things are left, and %d pods that wait", x.Len(), len(x.refused))
	}
}
