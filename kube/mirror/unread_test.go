package mirror

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/feed"
	"github.com/muster-sched/muster/kube/guard"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/tables"
)

// fed is a world that takes its pods and nodes from watches, as a scheduler does. The
// code panics at what is in trim, as it is cut down, and at what is in seen, when it is
// in the tables already.
type fed struct {
	*world
	box        *Mailbox
	podsSeen   *feed.Watched[*Mirror, *objects.Pod]
	nodesSeen  *feed.Watched[*Mirror, *objects.Node]
	trim, seen map[string]bool
}

func newFeed(t *testing.T) *fed {
	f := &fed{world: newWorld(t), box: NewMailbox(), trim: map[string]bool{}, seen: map[string]bool{}}
	f.m.log = slog.New(slog.DiscardHandler)
	f.podsSeen = feed.Follow(f.box, func(p *v1.Pod) *objects.Pod {
		if f.trim[p.Name] {
			panic("a bad pod")
		}
		return objects.TrimPod(p)
	}, f.podSeen, func(m *Mirror, o *objects.Pod) { m.podGone(o.UID) }, func(m *Mirror, list []*objects.Pod) {
		feed.Compare(m, m.Pods, list, (*objects.Pod).GetUID, func(o *objects.Pod) { f.podSeen(m, o) }, m.podGone)
	})
	f.nodesSeen = feed.Follow(f.box, func(n *v1.Node) *objects.Node {
		if f.trim[n.Name] {
			panic("a bad node")
		}
		return objects.TrimNode(n)
	}, f.nodeSeen, func(m *Mirror, o *objects.Node) { m.nodeGone(o.Name) }, func(m *Mirror, list []*objects.Node) {
		feed.Compare(m, m.Nodes, list, nameOf, func(o *objects.Node) { f.nodeSeen(m, o) }, m.nodeGone)
	})
	f.podsSeen.Bare, f.nodesSeen.Bare = feed.As(objects.BarePod), feed.As(objects.BareNode)
	return f
}

func (f *fed) podSeen(m *Mirror, o *objects.Pod) {
	if m.podSeen(o); f.seen[o.Name] {
		panic("a bad pod")
	}
}

func (f *fed) nodeSeen(m *Mirror, o *objects.Node) {
	if f.seen[o.Name] {
		m.Nodes[o.Name] = &tables.Node{}
		panic("a bad node")
	}
	m.nodeSeen(o)
}

// take takes in what came.
func (f *fed) take() {
	for _, x := range f.box.Take(nil) {
		x(f.m)
	}
}

// show makes a pod, or changes it, and has it seen as it is.
func (f *fed) show(name string, with ...change[*v1.Pod]) {
	w := *f.world
	w.m = New(Config{Policy: *f.m.Policies.Policy(), Levels: f.m.Topologies.Levels(), Log: f.m.log}) // that sees it in place of ours
	w.pod(name, with...)
	f.last, f.now = w.last, w.now
	o, err := f.podsSeen.Transformer()(f.pods["default/"+name].DeepCopy())
	if err != nil {
		f.t.Fatal(err)
	}
	_ = f.podsSeen.Update(o)
	f.take()
}

// A pod at which the scheduler panics is left out, and told so; the others start. What
// it has on its node is not given away.
func TestUnreadPods(t *testing.T) {
	for _, at := range []string{"trim", "seen", "trim, in a list", "seen, in a list"} {
		t.Run(at, func(t *testing.T) {
			f := newFeed(t)
			f.node("n", "r")
			f.show("ran")
			f.show("runs", asking(v1alpha1.GPUResource, "3"))
			f.settle()
			f.on("ran,runs>n,n")
			bad := f.seen
			if strings.HasPrefix(at, "trim") {
				bad = f.trim
			}
			bad["ran"], bad["waits"], bad["other"] = true, true, true
			f.show("ran", func(p *v1.Pod) { p.ResourceVersion = "9" })
			f.show("waits")
			f.show("other", asking(v1alpha1.GPUResource, "2"), func(p *v1.Pod) { p.Spec.NodeName = "n" }) // by an instance before
			if strings.HasSuffix(at, "list") {
				var list []any
				for _, p := range f.pods {
					list = append(list, p.DeepCopy())
				}
				_ = f.podsSeen.Replace(list, "")
				f.take()
			}
			f.settle()
			if got := scraped(f.m.metrics.Registry)["muster_unread_objects_total"]; got == "0" {
				t.Error("none is counted")
			}
			for name := range bad {
				if !slices.ContainsFunc(f.warned, func(w act.Warning) bool { return w.Name == name && w.Reason == tables.ReasonQuarantined }) {
					t.Errorf("nobody is told of %s: %v", name, f.warned)
				}
			}
			f.show("good", asking(v1alpha1.GPUResource, "2"))
			f.show("more")
			f.on("good>n", "more>", "waits>") // 8 GPUs: 1, 3, 2 and 2

			// One that is gone leaves its place, and one that can be read is as any other.
			clear(bad)
			f.show("waits")
			f.show("ran")
			_ = f.podsSeen.Delete(cache.DeletedFinalStateUnknown{Obj: f.pods["default/other"]})
			f.take()
			f.on("more,waits>n,n")
			if p := f.m.Pods[f.pods["default/ran"].UID]; p == nil || p.Slot < 0 || !p.Object.Ours {
				t.Errorf("it is not as before: %+v", p)
			}
		})
	}
}

// A node at which the scheduler panics counts as it was before; one that is new takes
// no pods.
func TestUnreadNodes(t *testing.T) {
	for _, at := range []string{"trim", "seen"} {
		t.Run(at, func(t *testing.T) {
			f := newFeed(t)
			f.node("old", "r")
			f.show("runs")
			f.on("runs>old")
			bad := f.seen
			if at == "trim" {
				bad = f.trim
				bad["old"] = true
			}
			bad["new"] = true
			fresh := f.nodes["old"].DeepCopy()
			fresh.Name = "new"
			_ = f.nodesSeen.Add(fresh)
			_ = f.nodesSeen.Replace([]any{f.nodes["old"], fresh}, "")
			f.take()
			if err := f.m.rebuild(); err != nil {
				t.Fatal(err)
			}
			f.show("large", asking(v1alpha1.GPUResource, "8"))
			f.show("small", asking(v1alpha1.GPUResource, "7"))
			f.on("large>", "runs,small>old,old")
			clear(bad)
			_ = f.nodesSeen.Update(fresh)
			f.take()
			f.on("large>new")
		})
	}
}

// What is to end the process does so, whatever was being taken in.
func TestEndingIsNotLeftOut(t *testing.T) {
	w := newWorld(t)
	defer func() {
		if v := recover(); v != (guard.Ending{V: "x"}) {
			t.Errorf("got %v", v)
		}
	}()
	w.m.TakeIn(nil, func() { panic(guard.Ending{V: "x"}) })
}
