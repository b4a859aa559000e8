package mirror

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy/muster"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/lease"
	"github.com/muster-sched/muster/kube/lost"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/stats"
	"github.com/muster-sched/muster/kube/storage"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// realm is a cluster that instances share: objects, and what became of them in
// order, which each instance sees when the test says so.
type realm struct {
	t         tester
	now       time.Time
	shards    []lease.Shard
	nodes     map[string]*v1.Node
	pods      map[string]*v1.Pod
	events    []func(*Mirror)
	instances []*instance
	holders   []*instance // of shards
	serial    int
	replaces  bool     // there is a new pod for each that is evicted
	binds     []string // what was bound, as instance:pod>node
	evicted   []string
}

// instance is a scheduler of a realm.
type instance struct {
	*Mirror
	name string
	read int              // events it has seen
	sent []tables.Binding // under way
	said []act.Report
	// leaving are pods that it was decided should leave.
	leaving []tables.Eviction
}

func newRealm(t tester, instances int, shards ...string) *realm {
	t.Helper()
	r := &realm{t: t, now: time.Unix(1_000_000, 0), nodes: map[string]*v1.Node{}, pods: map[string]*v1.Pod{}}
	var err error
	if r.shards, err = lease.ParseShards(shards); err != nil {
		t.Fatal(err)
	}
	r.holders = make([]*instance, len(r.shards))
	for range instances {
		r.join()
	}
	return r
}

// join adds an instance that holds nothing.
func (r *realm) join() *instance {
	r.serial++
	m := New(Config{
		Policy: muster.Docs[0].Policy, Log: slog.New(failing{r.t}), Metrics: stats.NewMetrics(), Shards: r.shards, Record: newTape(r.t),
	})
	m.Policies.Policy().Preempt.MinRuntime, m.Policies.Policy().Preempt.Interval = 0, 0
	m.Now = core.Time(r.now.UnixNano())
	x := &instance{Mirror: m, name: fmt.Sprint("i", r.serial)}
	r.instances = append(r.instances, x)
	return x
}

func (r *realm) shard(name string) int {
	i := slices.IndexFunc(r.shards, func(s lease.Shard) bool { return s.Name() == name })
	if i < 0 {
		r.t.Fatalf("there is no shard %s", name)
	}
	return i
}

// take gives a shard to an instance, which sees all there is to see first.
func (r *realm) take(x *instance, shard string) {
	r.t.Helper()
	i := r.shard(shard)
	if r.holders[i] != nil {
		r.t.Fatalf("%s is %s's", shard, r.holders[i].name)
	}
	r.catchUp(x)
	r.holders[i] = x
	if err := x.Take(i); err != nil {
		r.t.Fatal(err)
	}
}

// handOver has the holder of a shard give it up; it is nobody's once that is over.
func (r *realm) handOver(shard string) {
	i := r.shard(shard)
	r.holders[i].GiveUp(i, func() { r.holders[i] = nil })
}

// kill ends an instance. What it sent and is not named in lands is lost.
func (r *realm) kill(x *instance, lands func(tables.Binding) bool) {
	for _, b := range x.sent {
		if lands(b) {
			r.bind(x, b)
		}
	}
	r.instances = slices.DeleteFunc(r.instances, func(o *instance) bool { return o == x })
	for i := range r.holders {
		if r.holders[i] == x {
			r.holders[i] = nil
		}
	}
}

// catchUp has an instance see all.
func (r *realm) catchUp(x *instance) { r.see(x, len(r.events)-x.read) }

// see has an instance see so many events.
func (r *realm) see(x *instance, n int) {
	for ; n > 0 && x.read < len(r.events); n-- {
		r.events[x.read](x.Mirror)
		x.read++
	}
}

func (r *realm) node(name string, with ...change[*v1.Node]) {
	n := r.nodes[name]
	if n == nil {
		n = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{}}}
		n.Status.Allocatable = amounts("cpu", "64", "memory", "512Gi", "pods", "110", v1alpha1.GPUResource, "8")
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	}
	for _, f := range with {
		f(n)
	}
	n.Status.Capacity = n.Status.Allocatable
	r.nodes[name] = n
	o := n.DeepCopy()
	r.events = append(r.events, func(m *Mirror) { m.nodeSeen(objects.TrimNode(o)) })
}

// of makes a node one of a GPU model; pool puts it in a pool.
func ofModel(model string) change[*v1.Node] {
	return func(n *v1.Node) { n.Labels[v1alpha1.GPUModelLabel] = model }
}

func inPool(pool string) change[*v1.Node] {
	return func(n *v1.Node) { n.Labels[v1alpha1.PoolLabel] = pool }
}

func (r *realm) pod(name string, with ...change[*v1.Pod]) {
	p := r.pods[name]
	if p == nil {
		r.serial++
		r.now = r.now.Add(time.Millisecond)
		p = &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(fmt.Sprint("u", r.serial)), CreationTimestamp: metav1.NewTime(r.now),
			Labels: map[string]string{}, Annotations: map[string]string{},
		}}
		p.Spec.SchedulerName = v1alpha1.SchedulerName
		p.Spec.Containers = []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: amounts("cpu", "1", v1alpha1.GPUResource, "1")}}}
	}
	for _, f := range with {
		f(p)
	}
	r.pods[name] = p
	r.changed(p)
}

func (r *realm) changed(p *v1.Pod) {
	o := p.DeepCopy()
	r.events = append(r.events, func(m *Mirror) { m.podSeen(objects.TrimPod(o)) })
}

// models has a pod ask for GPU models.
func models(list string) change[*v1.Pod] {
	return func(p *v1.Pod) { p.Annotations[v1alpha1.GPUModelsAnnotation] = list }
}

func (r *realm) gone(name string) {
	uid := r.pods[name].UID
	delete(r.pods, name)
	r.events = append(r.events, func(m *Mirror) { m.podGone(uid) })
}

// decide has an instance make a pass, and notes what is to be done for it.
func (r *realm) decide(x *instance) {
	r.now = r.now.Add(time.Second)
	a := x.Mirror.decide(core.Time(r.now.UnixNano()))
	for _, b := range a.Bind {
		if o := b.Of.Object; r.holders[b.Of.Group.Shard] != x {
			r.t.Fatalf("%s binds pod %s, which is not its to bind", x.name, o.Name)
		}
		x.sent = append(x.sent, b)
	}
	x.leaving = append(x.leaving, a.Evict...)
	x.said = append(x.said, a.Report...)
	records := slices.Clone(a.Record)
	x.acts.Drop()
	for _, rec := range records {
		if p := r.pods[rec.Name]; p != nil && p.UID == rec.UID {
			p.Status.Conditions = []v1.PodCondition{{Type: v1alpha1.AdmittedCondition, Status: v1.ConditionTrue, Message: rec.Said}}
			r.changed(p)
		}
		x.recorded(rec.UID)
	}
}

// bind carries a binding out, as the API server does, and fails the test when a GPU
// is given twice or the node is not the instance's.
func (r *realm) bind(x *instance, b tables.Binding) (ok, gone bool) {
	o := b.Of.Object
	p := r.pods[o.Name]
	if p == nil || p.UID != o.UID {
		return false, true
	}
	if p.Spec.NodeName != "" {
		return true, false // the watch says where it is
	}
	n := r.nodes[b.Node]
	pool := translate.NodePool(n.Labels, n.Labels[v1alpha1.GPUModelLabel])
	if of := x.Shards.Of(pool); r.holders[of] != x {
		r.t.Fatalf("%s binds pod %s to node %s of pool %q, which is not its", x.name, o.Name, b.Node, pool)
	}
	mine, err := translate.ParseDevices(b.Annotations[v1alpha1.GPUsAnnotation])
	if err != nil {
		r.t.Fatal(err)
	}
	for _, other := range r.pods {
		theirs, _ := translate.ParseDevices(other.Annotations[v1alpha1.GPUsAnnotation])
		if other.Spec.NodeName == b.Node && slices.ContainsFunc(theirs, func(d int) bool { return slices.Contains(mine, d) }) {
			r.t.Fatalf("%s gives pod %s GPUs %v of node %s, of which pod %s has %v", x.name, o.Name, mine, b.Node, other.Name, theirs)
		}
	}
	p.Spec.NodeName = b.Node
	maps.Copy(p.Annotations, b.Annotations)
	r.binds = append(r.binds, x.name+":"+p.Name+">"+b.Node)
	r.changed(p)
	return true, false
}

// answer carries out the first binding that an instance sent, or refuses it.
func (r *realm) answer(x *instance, carried bool) {
	b := x.sent[0]
	x.sent = x.sent[1:]
	ok, gone := false, false
	if carried {
		ok, gone = r.bind(x, b)
	}
	x.bound(b.Of.Object.UID, ok, gone)
}

// settle has everything seen, decided and done until nothing more happens.
func (r *realm) settle() {
	r.t.Helper()
	for range 100 {
		quiet := true
		for _, x := range r.instances {
			r.catchUp(x)
			r.decide(x)
			for len(x.sent) > 0 {
				quiet = false
				r.answer(x, true)
			}
			for _, e := range x.leaving {
				if name := e.Of.Object.Name; r.pods[name] != nil && r.pods[name].UID == e.Of.Object.UID {
					quiet = false
					r.evicted = append(r.evicted, x.name+":"+name)
					old := r.pods[name]
					r.gone(name)
					if r.replaces {
						r.pod(name, func(p *v1.Pod) {
							p.Labels, p.Spec.Containers = old.Labels, old.Spec.Containers
							for _, k := range []string{v1alpha1.MinMemberAnnotation, v1alpha1.TaskAnnotation, v1alpha1.GPUModelsAnnotation} {
								if v := old.Annotations[k]; v != "" {
									p.Annotations[k] = v
								}
							}
						})
					}
				}
			}
			x.leaving = nil
		}
		if quiet {
			return
		}
	}
	r.t.Fatal("it never settles")
}

// bound fails the test unless these were bound since it was last asked, as
// instance:pod>node or, where the node does not matter, instance:pod.
func (r *realm) bound(want ...string) {
	r.t.Helper()
	r.settle()
	slices.Sort(r.binds)
	slices.Sort(want)
	same := slices.EqualFunc(r.binds, want, func(got, want string) bool {
		return got == want || strings.HasPrefix(got, want+">")
	})
	if !same {
		r.t.Errorf("these were bound: %q; want %q", r.binds, want)
	}
	r.binds = nil
}

// three is a realm of two instances: i1 has H800, i2 has all others.
func three(t *testing.T) (r *realm, a, b *instance) {
	t.Helper()
	r = newRealm(t, 2, "H800", "A100", "*")
	r.node("h", ofModel("H800"))
	r.node("a", ofModel("A100"))
	r.node("c", func(n *v1.Node) { delete(n.Status.Allocatable, v1alpha1.GPUResource) })
	a, b = r.instances[0], r.instances[1]
	r.take(a, "H800")
	r.take(b, "A100")
	r.take(b, "*")
	return r, a, b
}

func TestShardsByPool(t *testing.T) {
	r, _, _ := three(t)
	r.pod("by-model", models("H800"))
	r.pod("by-label", func(p *v1.Pod) { p.Labels[v1alpha1.PoolLabel] = "H800" })
	r.pod("of-two", models("H800|A100"))
	r.pod("of-none")
	r.pod("no-gpu", asking("cpu", "1"))
	for i := range 3 {
		r.pod(fmt.Sprint("gang", i), gang("g", 3), models("H800"))
	}
	r.bound("i1:by-model>h", "i1:by-label>h", "i1:gang0>h", "i1:gang1>h", "i1:gang2>h", "i2:of-two>a", "i2:of-none", "i2:no-gpu")

	// Its node is another's: it waits, and its own instance alone says so.
	r.pod("elsewhere", models("A100"), func(p *v1.Pod) { p.Labels[v1alpha1.PoolLabel] = "H800" })
	r.bound()
	for _, x := range r.instances {
		if x.Now += 60 * core.Second; x.name == "i1" {
			x.Explain(10)
			x.Now += 60 * core.Second
		}
		list := x.Explain(10)
		if told := len(list) == 1 && list[0].Name == "elsewhere"; told != (x.name == "i1") {
			t.Errorf("%s says %+v", x.name, list)
		} else if told && !strings.Contains(list[0].Message, "; only nodes of these shards count: H800") {
			t.Errorf("it does not say where there is no room: %s", list[0].Message)
		}
	}
	if got, want := r.instances[0].Stats().Reasons, r.instances[1].Stats().Reasons; len(got) != 1 || len(want) != 0 {
		t.Errorf("reasons: %v, and %v", got, want)
	}
}

// What runs in other shards counts in its queue.
func TestShardsShareQuota(t *testing.T) {
	r, a, _ := three(t)
	q := queueObject("q", "", v1alpha1.Quota{Model: "*", Nominal: GPUs(10), BorrowingLimit: new(v1alpha1.GPUs)})
	for _, x := range r.instances {
		x.queueSeen(q)
	}
	inQueue := func(p *v1.Pod) { p.Labels[v1alpha1.QueueLabel] = "q" }
	r.pod("big", models("A100"), asking(v1alpha1.GPUResource, "8"), inQueue)
	r.bound("i2:big>a")
	r.pod("more", models("H800"), asking(v1alpha1.GPUResource, "3"), inQueue)
	r.bound()
	if x, ok := a.engine.Explain("default/pod/more"); !ok || x.Reason != core.QuotaExceeded {
		t.Errorf("it waits for %v", x)
	}
	r.gone("big")
	r.bound("i1:more>h")
}

// What runs in other shards is left alone, although its place would do.
func TestShardsEvictTheirOwn(t *testing.T) {
	r, a, b := three(t)
	if free := a.Stats().Open; free != 3 {
		t.Errorf("%d nodes are open; want all 3, whoever decides", free)
	}
	high := func(p *v1.Pod) { p.Spec.Priority = new(int32); *p.Spec.Priority = 100 }
	// A job of the rest is put on the node of H800 while one instance has both.
	r.settle()
	r.handOver("H800")
	r.settle()
	r.take(b, "H800")
	r.pod("filler", models("A100"), asking(v1alpha1.GPUResource, "8"))
	r.settle()
	r.pod("anywhere", asking(v1alpha1.GPUResource, "8"))
	r.bound("i2:filler>a", "i2:anywhere>h")
	r.handOver("H800")
	r.settle()
	r.take(a, "H800")
	r.pod("urgent", models("H800"), asking(v1alpha1.GPUResource, "8"), high)
	r.bound()
	if len(r.evicted) != 0 {
		t.Errorf("%v are evicted by who does not decide on them", r.evicted)
	}
	a.hopes("urgent", t)
	r.pod("urgent-too", models("A100"), asking(v1alpha1.GPUResource, "8"), high)
	r.bound("i2:urgent-too>a")
	if want := []string{"i2:filler"}; !slices.Equal(r.evicted, want) {
		t.Errorf("%v are evicted; want %v", r.evicted, want)
	}
}

// hopes fails the test unless a job waits for GPUs, and not for victims to leave.
func (x *instance) hopes(pod string, t *testing.T) {
	t.Helper()
	if w, ok := x.engine.Explain("default/pod/" + pod); !ok || w.Reason == core.Victims {
		t.Errorf("%s waits for %v: %s", pod, w.Reason, w.Detail)
	}
}

// A binding that fails after its shard was given up is not tried elsewhere.
func TestShardGivenUpBindsNoMore(t *testing.T) {
	r, a, b := three(t)
	r.handOver("A100")
	r.settle()
	r.take(a, "A100")
	for _, name := range []string{"p", "q"} {
		r.pod(name, models("A100|H800"), gang("g", 1), asking(v1alpha1.GPUResource, "4"))
	}
	r.catchUp(a)
	r.decide(a)
	r.handOver("A100")
	r.decide(a)
	r.answer(a, false)
	r.answer(a, true)
	r.bound("i1:q>h")
	r.now = r.now.Add(time.Hour) // any pause is over
	r.bound()
	r.take(b, "A100")
	r.bound("i2:p>a")
}

// A gang of which bindings are under way when its shard is handed over, or its
// instance ends, is finished by the next.
func TestShardPassesOn(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed %t", killed), func(t *testing.T) {
			r, a, b := three(t)
			for i := range 4 {
				r.pod(fmt.Sprint("g", i), gang("g", 4), models("H800"))
			}
			r.pod("later", models("H800"), asking(v1alpha1.GPUResource, "5"))
			r.catchUp(a)
			r.decide(a)
			if len(a.sent) != 4 {
				t.Fatalf("%d are to be bound; want the gang", len(a.sent))
			}
			r.answer(a, true)
			if killed {
				r.kill(a, func(b tables.Binding) bool { return b.Of.Object.Name == "g2" })
			} else {
				r.handOver("H800")
				for len(a.sent) > 0 {
					if r.holders[r.shard("H800")] == nil {
						t.Fatal("it is given up while bindings are under way")
					}
					r.decide(a)
					r.answer(a, len(a.sent) != 2)
				}
				r.decide(a)
			}
			r.take(b, "H800")
			r.settle()
			at := map[string]bool{}
			for name, p := range r.pods {
				at[name] = p.Spec.NodeName == "h"
			}
			if want := map[string]bool{"g0": true, "g1": true, "g2": true, "g3": true, "later": false}; !maps.Equal(at, want) {
				t.Errorf("on their node: %v; want %v", at, want)
			}
			r.gone("g0")
			r.settle()
			if last := r.binds[len(r.binds)-1]; last != "i2:later>h" {
				t.Errorf("bound last: %s", last)
			}
		})
	}
}

// A shard is kept while a binding is under way of a job of it, or to a node of it, or
// while devices are being claimed for a pod that is gone.
func TestShardIsKeptWhileBindingsAreUnderWay(t *testing.T) {
	for _, shard := range []string{"*", "A100"} {
		r, _, b := three(t)
		r.pod("of-the-rest", asking(v1alpha1.GPUResource, "8"))
		r.catchUp(b)
		r.decide(b)
		if len(b.sent) != 1 || b.sent[0].Node != "a" {
			t.Fatalf("%+v is sent; expected a binding to the node of A100", b.sent)
		}
		r.handOver(shard)
		r.decide(b)
		if r.holders[r.shard(shard)] != b {
			t.Errorf("%s is given up while a binding is under way", shard)
		}
		b.Devices.ObserveSlice(&translate.Slice{Name: "h", Node: "h"})
		b.Devices.Lift("gone", "h", 1)
		r.answer(b, true)
		r.decide(b)
		if r.holders[r.shard(shard)] != b {
			t.Errorf("%s is given up while devices are being claimed", shard)
		}
		b.Devices.Land("gone")
		r.decide(b)
		if r.holders[r.shard(shard)] != nil {
			t.Errorf("%s is kept though nothing is under way", shard)
		}
	}
}

// A binding that waits for volumes is given up with the shard.
func TestShardGivenUpWhileVolumesAreMade(t *testing.T) {
	r, a, b := three(t)
	late := storagev1.VolumeBindingWaitForFirstConsumer
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Provisioner: disks, VolumeBindingMode: &late}
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "c"}}
	claim.Spec.StorageClassName = &class.Name
	for _, x := range r.instances {
		inStorage((*storage.Index).ObserveClass)(x.Mirror, storage.ClassOf(class))
		inStorage((*storage.Index).ObserveClaim)(x.Mirror, storage.ClaimOf(claim))
	}
	r.pod("p", models("H800"), using("c"))
	r.catchUp(a)
	r.decide(a)
	if len(a.Storage.Making()) != 1 || len(a.sent) != 0 {
		t.Fatalf("volumes are made for %d pods, %d bindings are sent; expected one, and none", len(a.Storage.Making()), len(a.sent))
	}
	r.handOver("H800")
	r.decide(a)
	if r.holders[r.shard("H800")] != nil || len(a.Storage.Making()) != 0 {
		t.Fatal("the shard is not given up")
	}
	r.take(b, "H800")
	r.catchUp(b)
	r.decide(b)
	if len(b.Storage.Making()) != 1 {
		t.Error("who decides next does not place the pod")
	}
}

// A node that was lost while nobody decided on its pods is emptied by the next.
func TestShardWithALostNode(t *testing.T) {
	r, a, b := three(t)
	b.Lost.Config = lost.Default()
	r.pod("p", models("H800"))
	r.bound("i1:p>h")
	r.kill(a, func(tables.Binding) bool { return true })
	r.node("h", func(n *v1.Node) {
		n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = v1.ConditionUnknown, metav1.NewTime(r.now)
	})
	r.now = r.now.Add(10 * time.Minute)
	r.settle()
	if len(r.evicted) != 0 {
		t.Fatalf("%v are evicted by who does not decide on them", r.evicted)
	}
	r.take(b, "H800")
	r.settle()
	if want := []string{"i2:p"}; !slices.Equal(r.evicted, want) {
		t.Errorf("%v are evicted; want %v", r.evicted, want)
	}
}

// What was under way for evictions and volumes is dropped with the shard.
func TestShardGivenUpForgets(t *testing.T) {
	r, a, b := three(t)
	high := func(p *v1.Pod) { p.Spec.Priority = new(int32); *p.Spec.Priority = 100 }
	r.pod("victim", models("H800"), asking(v1alpha1.GPUResource, "8"))
	r.bound("i1:victim>h")
	r.pod("urgent", models("H800"), asking(v1alpha1.GPUResource, "8"), high)
	r.catchUp(a)
	r.decide(a)
	if len(a.leaving) != 1 {
		t.Fatalf("%d are to leave", len(a.leaving))
	}
	a.leaving = nil // a budget does not allow it
	r.gone("urgent")
	r.handOver("H800")
	r.settle()
	r.take(b, "H800")
	r.bound()
	r.handOver("H800")
	r.settle()
	r.take(a, "H800")
	r.bound()
	if len(r.evicted) != 0 || r.pods["victim"] == nil {
		t.Errorf("%v are evicted for nobody", r.evicted)
	}
	if p := a.Pods[r.pods["victim"].UID]; p.State != tables.PodBound {
		t.Errorf("it is in state %d", p.State)
	}
}

// Who takes a shard over says what was left unsaid, and what is not so any more.
func TestShardConditions(t *testing.T) {
	r, a, b := three(t)
	waiting := func(p *v1.Pod) {
		p.Status.Conditions = []v1.PodCondition{{Type: v1alpha1.WaitingCondition, Status: v1.ConditionTrue, Reason: "Resources"}}
	}
	r.pod("p", models("H800"))
	r.bound("i1:p>h")
	r.pod("p", waiting) // what i1 said before arrives late
	r.pod("q", models("H800"), waiting, asking(v1alpha1.GPUResource, "8"))
	r.pod("done", models("H800"), gang("g", 1), asking(v1alpha1.GPUResource, "1"))
	r.bound("i1:done>h")
	r.pod("wrong", models("H800"), gang("g", 1), using("nothing"))
	r.settle()
	a.said, b.said = nil, nil
	r.handOver("H800")
	r.settle()
	for range 2 {
		a.Now += 60 * core.Second
		if list := a.Explain(10); len(list) != 0 {
			t.Errorf("i1 says %+v still", list)
		}
	}
	r.take(b, "H800")
	r.settle()
	if len(a.said) != 0 || len(b.said) != 1 || b.said[0].Name != "p" || b.said[0].Reason != "" {
		t.Errorf("i1 says %+v, i2 says %+v", a.said, b.said)
	}
	// One that waited when it was taken over is told that it waits no more.
	b.said = nil
	r.gone("p")
	r.gone("done")
	r.bound("i2:q>h")
	if len(b.said) != 1 || b.said[0].Name != "q" || b.said[0].Reason != "" {
		t.Errorf("i2 says %+v", b.said)
	}
}

// Pods of a drained node are moved by who decides on them, and by the next after a
// hand-over.
func TestShardDrains(t *testing.T) {
	r, a, b := three(t)
	r.pod("p", models("H800"))
	r.bound("i1:p>h")
	r.node("h", func(n *v1.Node) {
		n.Spec.Unschedulable = true
		n.Annotations = map[string]string{v1alpha1.DrainAnnotation: "10m"}
	})
	moves := func(x *instance) int {
		r.catchUp(x)
		r.now = r.now.Add(time.Second)
		defer x.acts.Drop()
		return len(x.Mirror.decide(core.Time(r.now.UnixNano())).Move)
	}
	if mine, others := moves(a), moves(b); mine != 1 || others != 0 {
		t.Fatalf("i1 moves %d, i2 moves %d", mine, others)
	}
	r.handOver("H800")
	moves(a)
	r.take(b, "H800")
	if mine, others := moves(b), moves(a); mine != 1 || others != 0 {
		t.Fatalf("after the hand-over, i2 moves %d, i1 moves %d", mine, others)
	}
	r.handOver("H800")
	moves(b)
	r.take(a, "H800")
	if mine := moves(a); mine != 1 {
		t.Errorf("what i1 had begun it does not begin again: %d", mine)
	}
}

// A job whose labels put it into another shard passes to the other instance.
func TestJobMovesToAnotherShard(t *testing.T) {
	r, a, b := three(t)
	r.pod("full", models("H800"), asking(v1alpha1.GPUResource, "8"))
	r.pod("p", models("H800"))
	r.bound("i1:full>h")
	r.pod("p", func(p *v1.Pod) {
		delete(p.Annotations, v1alpha1.GPUModelsAnnotation)
		p.Labels[v1alpha1.PoolLabel] = "A100"
	})
	r.bound("i2:p>a")
	for _, x := range []*instance{a, b} {
		x.namespaceSeen(&objects.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Labels: map[string]string{v1alpha1.PoolLabel: "A100"}})
	}
	r.pod("by-namespace", asking(v1alpha1.GPUResource, "1"))
	r.bound("i2:by-namespace>a")
	if g := a.Groups[a.Pods[r.pods["full"].UID].Group.ID]; a.Ours(g) || g.Shard != r.shard("A100") {
		t.Error("a job that names a model alone goes where its namespace says")
	}
	r.pod("urgent", asking(v1alpha1.GPUResource, "8"), func(p *v1.Pod) {
		p.Spec.Priority = new(int32)
		*p.Spec.Priority, p.Labels[v1alpha1.PoolLabel] = 100, "H800"
	})
	r.bound()
	a.hopes("urgent", t)
}

// Of a job that passes to another shard, a pod that was told to leave stays unless its
// new instance says so too.
func TestJobThatLeavesMovesToAnotherShard(t *testing.T) {
	r, a, _ := three(t)
	r.pod("victim", models("H800"), asking(v1alpha1.GPUResource, "8"))
	r.bound("i1:victim>h")
	r.pod("urgent", models("H800"), asking(v1alpha1.GPUResource, "8"), func(p *v1.Pod) { p.Spec.Priority = new(int32(100)) })
	r.catchUp(a)
	r.decide(a)
	if len(a.leaving) != 1 {
		t.Fatalf("%d are to leave", len(a.leaving))
	}
	a.leaving = nil // a budget does not allow it
	r.gone("urgent")
	for _, x := range r.instances {
		x.namespaceSeen(&objects.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Labels: map[string]string{v1alpha1.PoolLabel: "A100"}})
		x.touch(x.Pods[r.pods["victim"].UID].Group)
	}
	r.bound()
	if p := a.Pods[r.pods["victim"].UID]; p.State != tables.PodBound || len(r.evicted) != 0 {
		t.Errorf("it is in state %d; evicted: %v", p.State, r.evicted)
	}
}

// Who relabels a pod that runs does not take it out of its instance's hands: its queue's
// owner gets back what it borrowed. An instance that comes later finds the same.
func TestRelabelledPool(t *testing.T) {
	r, a, b := three(t)
	for _, x := range []*instance{a, b} {
		for name, gpus := range map[string]int{"owner": 8, "guest": 0} {
			q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}}
			q.Spec.Quota = []v1alpha1.Quota{{Model: "*", Nominal: v1alpha1.GPUs(gpus) * 1000}}
			x.queueSeen(q)
		}
	}
	r.pod("guest", models("H800"), asking(v1alpha1.GPUResource, "8"), inQueue("guest"))
	r.bound("i1:guest>h")
	r.pod("guest", func(p *v1.Pod) { p.Labels[v1alpha1.PoolLabel] = "A100" })
	late := New(Config{Policy: *a.Policies.Policy(), Levels: a.Topologies.Levels(), Log: a.log, Shards: r.shards})
	late.podSeen(objects.TrimPod(r.pods["guest"])) // before anybody has recorded it
	r.settle()
	late.podSeen(objects.TrimPod(r.pods["guest"]))
	if g := late.Pods[r.pods["guest"].UID].Group; late.ShardOf(g) != r.shard("H800") {
		t.Error("an instance that came while the pod was edited has it in another shard")
	}
	r.now = r.now.Add(24 * time.Hour)
	r.pod("own", models("H800"), asking(v1alpha1.GPUResource, "8"), inQueue("owner"))
	for range 3 {
		r.now = r.now.Add(time.Hour)
		r.settle()
	}
	if !slices.Equal(r.evicted, []string{"i1:guest"}) || r.pods["own"].Spec.NodeName != "h" {
		t.Errorf("evicted: %v; the owner's job is on %q", r.evicted, r.pods["own"].Spec.NodeName)
	}
}

// A node that comes from another's shard takes no pods for as long as a binding
// there may be under way.
func TestNodeMovesToAnotherShard(t *testing.T) {
	r, _, b := three(t)
	r.node("more", ofModel("H800"))
	r.pod("full", models("A100"), asking(v1alpha1.GPUResource, "8"))
	r.bound("i2:full>a")
	r.node("more", inPool("A100"))
	r.pod("p", asking(v1alpha1.GPUResource, "8"), func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1alpha1.PoolLabel: "A100"} })
	r.catchUp(b)
	r.decide(b)
	opens := b.acts.Wake
	if a := b.Mirror.decide(core.Time(r.now.UnixNano())); len(a.Bind) > 0 || a.Wake > core.Time(r.now.UnixNano())+arrivalPause {
		t.Fatalf("%d are bound, the next look is at %v (%v)", len(a.Bind), a.Wake, opens)
	}
	r.bound()
	r.now = r.now.Add(time.Duration(arrivalPause))
	r.bound("i2:p>more")
}

// The statuses of queues and the like are written by one instance, and what is told
// of the whole cluster is told by it.
func TestShardStatuses(t *testing.T) {
	r, a, b := three(t)
	for _, x := range r.instances {
		x.queueSeen(queueObject("q", "", v1alpha1.Quota{Model: "*", Nominal: GPUs(16)}))
	}
	inQueue := func(p *v1.Pod) { p.Labels[v1alpha1.QueueLabel] = "q" }
	r.pod("x", models("H800"), asking(v1alpha1.GPUResource, "8"), inQueue)
	r.pod("y", models("A100"), inQueue)
	r.pod("z", models("H800"), inQueue)
	r.settle()
	if list := a.Statuses(metav1.Now()); len(list) != 0 {
		t.Errorf("i1 writes %+v", list)
	}
	list := b.Statuses(metav1.Now())
	if len(list) != 1 {
		t.Fatalf("i2 writes %+v", list)
	}
	st := list[0].Object.(*v1alpha1.Queue).Status
	if st.RunningJobs != 2 || st.PendingJobs != 1 || st.Used != v1alpha1.GPUs(9000) {
		t.Errorf("the queue stands so: %+v", st)
	}
}

// Instances that come, hand over and end at any time, and see what happens late,
// give no GPU twice, bind no pod that is not theirs to bind, tear no gang, and in the
// end everything is bound.
func TestShardsRandom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRealm(rt, 2, "H800", "A100", "*")
		r.replaces = true // a gang of which a pod is not bound starts again
		pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "pick") }
		for i := range 2 {
			r.node(fmt.Sprint("h", i), ofModel("H800"))
			r.node(fmt.Sprint("a", i), ofModel("A100"))
			r.node(fmt.Sprint("b", i), ofModel("B"))
		}
		pool := func() change[*v1.Pod] {
			if m := []string{"H800", "A100", "B", ""}[pick(4)]; m != "" {
				return models(m)
			}
			return func(*v1.Pod) {}
		}
		for range rapid.IntRange(1, 80).Draw(rt, "steps") {
			if len(r.instances) == 0 {
				r.join()
			}
			x := r.instances[pick(len(r.instances))]
			shard := r.shards[pick(len(r.shards))].Name()
			holder := r.holders[r.shard(shard)]
			switch pick(17) {
			case 0:
				if len(r.pods) < 12 {
					r.serial++
					r.pod(fmt.Sprint("p", r.serial), pool())
				}
			case 1:
				if len(r.pods) < 12 {
					in := pool()
					r.serial++
					name := fmt.Sprint("g", r.serial)
					for i := range 4 {
						r.pod(fmt.Sprintf("%s-%d", name, i), gang(name, 4), in)
					}
				}
			case 2:
				if names := slices.Sorted(maps.Keys(r.pods)); len(names) > 0 {
					if name := names[pick(len(names))]; name[0] == 'p' {
						r.gone(name)
					}
				}
			case 12: // it may be bound by two at once: the first counts
				if names := slices.Sorted(maps.Keys(r.pods)); len(names) > 0 {
					to := []string{"H800", "A100", "B"}[pick(3)]
					r.pod(names[pick(len(names))], func(p *v1.Pod) { p.Labels[v1alpha1.PoolLabel] = to })
				}
			case 13: // in place
				if names := slices.Sorted(maps.Keys(r.pods)); len(names) > 0 {
					r.pod(names[pick(len(names))], asking("cpu", []string{"1", "2", "5"}[pick(3)], v1alpha1.GPUResource, "1"))
				}
			case 14: // taken out of its owner's hands, or given to one
				if names := slices.Sorted(maps.Keys(r.pods)); len(names) > 0 {
					if name := names[pick(len(names))]; name[0] == 'p' {
						r.pod(name, func(p *v1.Pod) {
							if p.OwnerReferences != nil {
								p.OwnerReferences = nil
								return
							}
							of("apps/v1", "ReplicaSet", "owner")(p)
						})
					}
				}
			case 15: // a gang of which a role has more than its least
				if len(r.pods) < 12 {
					in := pool()
					r.serial++
					name := fmt.Sprint("g", r.serial)
					for i := range 3 {
						role := []string{"worker", "worker", "ps"}[i]
						r.pod(fmt.Sprintf("%s-%d", name, i), gang(name, 0), noted(v1alpha1.MinMemberAnnotation, "ps=1,worker=1"), noted(v1alpha1.TaskAnnotation, role), in)
					}
				}
			case 16: // said otherwise: that of the gang's others counts
				if names := slices.Sorted(maps.Keys(r.pods)); len(names) > 0 {
					if name := names[pick(len(names))]; r.pods[name].Annotations[v1alpha1.MinMemberAnnotation] == "4" {
						r.pod(name, noted(v1alpha1.MinMemberAnnotation, "3"))
					}
				}
			case 3, 4:
				if x.engine != nil {
					r.decide(x)
				}
			case 5, 6:
				if len(x.sent) > 0 {
					r.answer(x, pick(4) > 0)
				}
			case 7, 8:
				r.see(x, 1+pick(4))
			case 9:
				if holder == nil {
					r.take(x, shard)
				}
			case 10:
				if holder != nil && holder.Shards.Held[r.shard(shard)] {
					r.handOver(shard)
				}
			case 11:
				switch {
				case len(r.instances) < 3:
					r.join()
				case pick(2) == 0:
					r.kill(x, func(tables.Binding) bool { return pick(2) == 0 })
				}
			}
		}
		if len(r.instances) == 0 {
			r.join()
		}
		// One has all in the end: a job may have been put where its GPUs are not.
		r.settle()
		last := r.instances[pick(len(r.instances))]
		for i, s := range r.shards {
			if holder := r.holders[i]; holder != nil && holder != last && holder.Shards.Held[i] {
				r.handOver(s.Name())
			}
		}
		r.settle()
		for i, s := range r.shards {
			if r.holders[i] == nil {
				r.take(last, s.Name())
			}
		}
		for range 3 { // pauses after failed starts
			r.now = r.now.Add(time.Hour)
			r.settle()
		}
		for name, p := range r.pods {
			if p.Spec.NodeName == "" {
				rt.Errorf("pod %s is not bound", name)
			}
		}
		for _, name := range r.evicted {
			if !strings.Contains(name, ":g") {
				rt.Errorf("%s is evicted", name)
			}
		}
	})
}
