package devices

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/selector"
	"github.com/muster-sched/muster/kube/translate"
)

// below is a selector that differs from others of another k, and holds for all GPUs.
func below(k int) string { return fmt.Sprintf("%s < %d", index, 1000+k) }

// not is a selector that differs from others of another k, and from device to device: it holds for all GPUs.
func not(k int) string { return fmt.Sprintf(`device.attributes["gpu.nvidia.com"].uuid != "%d"`, k) }

// asker is a pod of a namespace with a claim of its own, which has these selectors.
func (w *world) asker(namespace, name string, selectors ...string) *Pod {
	w.version++
	c := &resourceapi.ResourceClaim{}
	c.Namespace, c.Name, c.UID, c.ResourceVersion = namespace, name, types.UID(name), fmt.Sprint(w.version)
	c.Spec.Devices.Requests = []resourceapi.DeviceRequest{asks("gpu", 1, selectors...)}
	w.ObserveClaim(ClaimOf(c))
	p := &Pod{State: State{UID: types.UID(name), Name: name}, Namespace: namespace, Claims: []ClaimRef{{Name: name, Source: name, Claim: name}}}
	w.Refer(p.UID, p.Namespace, p.Claims)
	return p
}

// leaves has a pod go, with its claim.
func (w *world) leaves(p *Pod) {
	delete(w.pods, p.UID)
	w.ForgetPod(p.UID, p.Namespace)
	w.Unrefer(p.UID, p.Namespace, p.Claims)
	o := &Claim{}
	o.Namespace, o.Name = p.Namespace, p.Name
	w.ForgetClaim(o)
}

// described returns a node as the index describes it.
func (w *world) described(name string) *core.Node {
	n := &core.Node{Name: name, Labels: map[string]string{}}
	w.Describe(n)
	return n
}

// works has the index work until it has nothing left to do at once, from a time on. It returns which pods were to be resolved
// again, and in how many passes.
func (w *world) works(now core.Time) (pods []types.UID, passes int) {
	for {
		c, again := w.Work(now)
		passes++
		for _, uid := range c.Pods {
			if !slices.Contains(pods, uid) {
				pods = append(pods, uid)
			}
		}
		if w.turns.Len()+len(w.found) == 0 {
			return pods, passes
		}
		now = again
	}
}

// empty fails the test if anything is left of what pods asked.
func (w *world) empty() {
	w.Helper()
	for name, n := range map[string]int{
		"uses": len(w.uses), "moved": len(w.moved), "turns": w.turns.Len(), "found": len(w.found),
	} {
		if n != 0 {
			w.Errorf("%s: %d are left", name, n)
		}
	}
	if !w.allowance.Empty() {
		w.Error("something counts still")
	}
	for key := range w.questions {
		if !w.byClass[key] {
			w.Errorf("question %q is left", key)
		}
	}
	for name, p := range w.published {
		for q := range p.answers {
			if !w.byClass[q.key] {
				w.Errorf("node %s has the answer to %q", name, q.key)
			}
		}
	}
}

const minute = 60 * core.Second

// A namespace asks so many questions and no more, whatever comes and goes; others ask theirs. What nobody asks is forgotten, and
// those that waited for that are resolved again.
func TestQuestionsOfANamespace(t *testing.T) {
	w := newWorld(t)
	w.ObserveSlice(slice("a", "gpu.nvidia.com", 4))
	w.Work(0)
	var pods []*Pod
	for k := range MaxQuestions {
		pods = append(pods, w.asker("bad", fmt.Sprint("p", k), below(k)))
		w.works(minute)
		w.takes(pods[k], 1)
	}
	few := len(w.described("a").Labels)

	// 1. Further pods wait, but those that ask what others do, that only name a class, or that have a place.
	more := w.asker("bad", "more", below(MaxQuestions))
	w.waits(more, ReasonTooComplex, "the pods of the namespace have 100 different selectors and constraints in their resource claims, or had within the last 10 minutes")
	w.takes(w.asker("bad", "same", below(0)), 1)
	w.takes(w.asker("bad", "class"), 1)
	w.takes(w.asker("good", "good", below(MaxQuestions+1)), 1)
	placed := w.asker("bad", "placed", below(MaxQuestions+2))
	placed.Placed, placed.Node = true, "a"
	n, _ := w.resolve(placed)
	if at := w.described("a"); n.Reason != "" || !n.Request.Allows(at.Labels) {
		t.Errorf("a pod that has a place needs %+v of a node with %v", n, at.Labels)
	}
	w.leaves(placed)
	if n := len(w.described("a").Labels); n != few+2 {
		t.Errorf("the node has %d labels, expected %d and 2 more", n, few)
	}

	// 2. There is room when two questions are no longer asked, ten minutes later: one that was asked beyond the bound, and another.
	w.leaves(pods[1])
	w.waits(more, ReasonTooComplex, "")
	if again, _ := w.works(9 * minute); len(again) > 0 {
		t.Errorf("%v are to be resolved again, though what is no longer asked still counts", again)
	}
	again, _ := w.works(13 * minute)
	if !slices.Equal(again, []types.UID{"more"}) {
		t.Errorf("%v are to be resolved again, expected the pod that waits for room", again)
	}
	w.takes(more, 1)
	w.waits(w.asker("bad", "one more", below(-1)), ReasonTooComplex, "")

	// 3. A constraint counts as a selector does.
	c := w.asker("bad", "constraint")
	w.claim("constraint", nil, func(c *resourceapi.ResourceClaim) {
		c.Namespace = "bad"
		c.Spec.Devices.Requests = []resourceapi.DeviceRequest{asks("gpu", 2)}
		attribute := resourceapi.FullyQualifiedName("gpu.nvidia.com/type")
		c.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &attribute}}
	})
	w.waits(c, ReasonTooComplex, "")
}

// A question that two namespaces ask counts for both, and is forgotten when neither asks it.
func TestQuestionOfTwoNamespaces(t *testing.T) {
	w := newWorld(t)
	w.ObserveSlice(slice("a", "gpu.nvidia.com", 4))
	bare := len(w.described("a").Labels)
	one, other := w.asker("one", "p", below(0)), w.asker("other", "q", below(0))
	w.takes(one, 1)
	w.takes(other, 1)
	if w.allowance.Len("one") != 1 || w.allowance.Len("other") != 1 {
		t.Error("the question counts for one of them only")
	}
	labels := len(w.described("a").Labels)
	w.leaves(one)
	w.works(20 * minute)
	if w.allowance.Len("one") != 0 || len(w.described("a").Labels) != labels {
		t.Error("the question counts for who no longer asks it, or is gone for who does")
	}
	w.leaves(other)
	w.works(29 * minute)
	if len(w.described("a").Labels) != labels {
		t.Error("the question is forgotten though it was asked within the last ten minutes")
	}
	c, _ := w.Work(31 * minute)
	if w.says(c, "", "a"); len(w.described("a").Labels) != bare {
		t.Errorf("the node is described as %v", w.described("a").Labels)
	}
	w.empty()
}

// What a namespace asks that is new costs little in a pass, however many nodes there are, and others do not wait for it long.
func TestQuestionsInTurns(t *testing.T) {
	const nodes = 500
	passes := func(bad int) int {
		w := newWorld(t)
		for k := range nodes {
			w.ObserveSlice(slice(fmt.Sprint("n", k), "gpu.nvidia.com", 8))
		}
		w.Work(0)
		for k := range bad {
			w.resolve(w.asker("bad", fmt.Sprint("p", k), not(k)))
			if w.left < -2*perSelectors {
				t.Fatalf("%d units more than a pass may take", -w.left)
			}
		}
		now := core.Time(0)
		good := w.asker("good", "good", not(-1))
		w.waits(good, ReasonClaimPending, "request xgpu: it is being compared with the devices of the nodes")
		for pass := 1; ; pass++ {
			c, again := w.Work(now)
			if w.left < -2*perSelectors {
				t.Fatalf("pass %d took %d units more than it may", pass, -w.left)
			}
			if slices.Contains(c.Pods, "good") {
				n := w.takes(good, 1)
				for k := range nodes {
					if at := w.described(fmt.Sprint("n", k)); !n.Request.Allows(at.Labels) {
						t.Fatalf("node %d has the labels %v", k, at.Labels)
					}
				}
				return pass
			}
			if again > now+core.Second/10 {
				t.Fatalf("after pass %d, the next one is at %v", pass, again)
			}
			now = again
		}
	}
	alone := passes(0)
	beside := passes(MaxQuestions)
	t.Logf("%d passes alone, %d beside another namespace's questions", alone, beside)
	if alone < 4 || beside > 2*alone+int(publishInterval/pause) {
		t.Errorf("%d passes alone, %d beside another namespace's questions", alone, beside)
	}
}

// A selector that costs too much on a device, or is too long, is refused. That costs no more than it may.
func TestSelectorsThatCostTooMuch(t *testing.T) {
	w := newWorld(t)
	for k := range 100 {
		w.ObserveSlice(slice(fmt.Sprint("n", k), "gpu.nvidia.com", 8))
	}
	w.Work(0)
	list := "[" + strings.Repeat("1,", 30) + "1]"
	dear := fmt.Sprintf(`%s.all(a, %s.all(b, %s.all(c, a+b+c < %s + 9)))`, list, list, list, index)
	p := w.asker("bad", "dear", dear)
	w.waits(p, ReasonTooComplex, "costs more than 10000 units of CEL on a device")
	if spent := perPass - w.left; spent > 3*selector.MaxCost {
		t.Errorf("it took %d units", spent)
	}
	w.waits(w.asker("bad", "long", strings.Repeat(" ", 6<<10)+below(1), strings.Repeat(" ", 6<<10)+below(2)), ReasonTooComplex, "bytes: expected at most 10240")
	w.takes(w.asker("bad", "usual", index+" < 4 && "+index+" in [0, 1, 2, 3, 4, 5]"), 1)
}

// After whatever has come and gone, nodes are described as by an index that has seen only what is left; and nothing is left of pods
// that are gone.
func TestQuestionsRandom(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 19))
		w := newWorld(t)
		nodes := map[string]*translate.Slice{}
		see := func(w *world, name string, s *translate.Slice) {
			if s != nil {
				w.ObserveSlice(s)
			}
		}
		set := func(name string, gpus int) {
			if old := nodes[name]; gpus == 0 && old != nil {
				w.ForgetSlice(old)
				delete(nodes, name)
			} else if gpus > 0 {
				nodes[name] = slice(name, "gpu.nvidia.com", gpus)
				see(w, name, nodes[name])
			}
		}
		set("always", 4) // selectors by index hold for single GPUs, now and ever
		pods := map[string]*Pod{}
		selectors := map[string][]string{}
		now := core.Time(0)
		for step := range 300 {
			now += core.Time(r.IntN(int(minute)))
			switch r.IntN(6) {
			case 0:
				set(fmt.Sprint("n", r.IntN(3)), r.IntN(5))
			case 1, 2, 3:
				name := fmt.Sprint("p", step)
				s := [][]string{{}, {below(r.IntN(8))}, {index + fmt.Sprintf(" == %d", r.IntN(4))}, {"true", fmt.Sprintf("%s > -%d", index, r.IntN(4))}}[r.IntN(4)]
				pods[name], selectors[name] = w.asker(fmt.Sprint("ns", r.IntN(2)), name, s...), s
				w.resolve(pods[name])
			case 4, 5:
				for _, name := range slices.Sorted(maps.Keys(pods))[:len(pods)/2] {
					w.leaves(pods[name])
					delete(pods, name)
				}
			}
			if r.IntN(3) == 0 {
				w.left = int64(r.IntN(300)) // a pass that has little left
			}
			if r.IntN(2) == 0 {
				w.Work(now)
			}
		}
		w.works(now + 20*minute)
		w.works(now + 40*minute)

		fresh := newWorld(t)
		for _, s := range nodes {
			see(fresh, s.Node, s)
		}
		for name, p := range pods {
			fresh.resolve(fresh.asker(p.Namespace, name, selectors[name]...))
			fresh.works(0)
		}
		// The class of network devices, and that of GPUs, are known to one where a pod has named them.
		for _, x := range []*world{w, fresh} {
			x.ofClass(x.classes["gpu"])
		}
		for name := range nodes {
			a, b := w.described(name), fresh.described(name)
			if !maps.Equal(a.Labels, b.Labels) || !slices.Equal(a.Sets, b.Sets) {
				t.Fatalf("seed %d: node %s is described by %v and sets %v; expected %v and %v", seed, name, a.Labels, a.Sets, b.Labels, b.Sets)
			}
		}
		for name := range pods {
			p := pods[name]
			got, _ := w.resolve(p)
			want, _ := fresh.resolve(p)
			if got.Reason != want.Reason || !got.Request.Equal(&want.Request) {
				t.Fatalf("seed %d: pod %s needs %+v, expected %+v", seed, name, got, want)
			}
		}
		for _, p := range pods {
			w.leaves(p)
		}
		w.Again()
		w.works(now + 60*minute)
		w.empty()
	}
}
