package mirror

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy/muster"
	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/owners"
	"github.com/muster-sched/muster/kube/stats"
	"github.com/muster-sched/muster/kube/storage"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// world is a mirror with objects in place of an API: what the mirror asks for
// happens to the objects, and it is told.
type world struct {
	t     tester
	m     *Mirror
	now   time.Time
	nodes map[string]*v1.Node
	pods  map[string]*v1.Pod // by namespace/name
	last  int                // UIDs given out
	// binds is every binding that was carried out, as pod>node.
	binds []string
	// onBind is told of a binding before it happens, and may refuse it.
	onBind func(b *tables.Binding) bool
	// onActs is told of the acts of each pass that settle makes; nil for none.
	onActs func(*tables.Acts)
	// onRelease is told of the claims whose devices are to be given back.
	onRelease func(translate.ClaimWrite)
	// warned is what people were told of pods in events.
	warned []act.Warning
	// tells says that the test says itself what owners of pods say.
	tells bool
	// made says whether claims that are told a node get a volume there.
	made   bool
	claims map[string]*v1.PersistentVolumeClaim // by namespace/name
}

// withoutRoom is a policy by which no pods leave to make room for a job.
func withoutRoom(p *core.Policy) { p.Room = core.Room{} }

// rack is the level of the topology in these tests.
var rack = translate.Level{Name: "rack", Label: "topology.example.com/rack"}

// tester is what tests of all kinds have.
type tester interface {
	Helper()
	Cleanup(func())
	Log(...any)
	Logf(string, ...any)
	Error(...any)
	Errorf(string, ...any)
	Fatal(...any)
	Fatalf(string, ...any)
}

func newWorld(t tester, with ...change[*core.Policy]) *world {
	policy := muster.Docs[0].Policy
	for _, f := range with {
		f(&policy)
	}
	w := &world{t: t, now: time.Unix(1_000_000, 0), nodes: map[string]*v1.Node{}, pods: map[string]*v1.Pod{}, claims: map[string]*v1.PersistentVolumeClaim{}}
	w.m = New(Config{
		Policy: policy, Levels: []translate.Level{rack}, Log: slog.New(failing{t}), Metrics: stats.NewMetrics(), Record: newTape(t),
	})
	w.m.Now = core.Time(w.now.UnixNano())
	if err := w.m.rebuild(); err != nil {
		t.Fatal(err)
	}
	return w
}

// failing is a log in which nothing above a warning may be written.
type failing struct{ t tester }

func (f failing) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (f failing) WithAttrs([]slog.Attr) slog.Handler { return f }

func (f failing) WithGroup(string) slog.Handler { return f }

func (f failing) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	if r.Level >= slog.LevelError {
		f.t.Error(text)
	} else {
		f.t.Log(text)
	}
	return nil
}

// change alters an object before the mirror sees it.
type change[T any] func(T)

// node adds a node with 8 GPUs in a rack, or changes it.
func (w *world) node(name, inRack string, with ...change[*v1.Node]) {
	n := w.nodes[name]
	if n == nil {
		n = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: w.uid(), Labels: map[string]string{"kubernetes.io/hostname": name}}}
		n.Status.Allocatable = amounts("cpu", "64", "memory", "512Gi", "pods", "110", v1alpha1.GPUResource, "8")
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	}
	if inRack != "" {
		n.Labels[rack.Label] = inRack
	}
	for _, f := range with {
		f(n)
	}
	n.Status.Capacity = n.Status.Allocatable
	w.nodes[name] = n
	w.m.nodeSeen(objects.TrimNode(n))
}

func (w *world) uid() types.UID {
	w.last++
	return types.UID(fmt.Sprint("u", w.last))
}

// pod makes a pod of one GPU in the namespace default, or changes it.
func (w *world) pod(name string, with ...change[*v1.Pod]) {
	key := name
	namespace, short, ok := strings.Cut(name, "/")
	if !ok {
		namespace, short, key = "default", name, "default/"+name
	}
	p := w.pods[key]
	if p == nil {
		w.now = w.now.Add(time.Millisecond)
		p = &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: short, UID: w.uid(), CreationTimestamp: metav1.NewTime(w.now),
			Labels: map[string]string{}, Annotations: map[string]string{},
		}}
		p.Spec.SchedulerName = v1alpha1.SchedulerName
		p.Spec.Containers = []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: amounts("cpu", "1", v1alpha1.GPUResource, "1")}}}
	}
	for _, f := range with {
		f(p)
	}
	w.pods[key] = p
	w.m.podSeen(objects.TrimPod(p))
}

// gone deletes a pod.
func (w *world) gone(name string) {
	key := "default/" + name
	w.m.podGone(w.pods[key].UID)
	delete(w.pods, key)
}

func amounts(list ...string) v1.ResourceList {
	out := v1.ResourceList{}
	for i := 0; i < len(list); i += 2 {
		out[v1.ResourceName(list[i])] = resource.MustParse(list[i+1])
	}
	return out
}

// answer says that owners of pods say nothing, and reports whether it did: tests answer for those without which
// no pod starts.
func (w *world) answer(g *tables.Group) bool {
	if w.tells || slices.ContainsFunc(g.Objects, func(o translate.ObjectRef) bool { return owners.Sizes(&o) }) {
		return false
	}
	w.m.asked(g.ID, &owners.Gang{}, nil)
	return true
}

// settle decides and lets happen what was decided, until nothing is.
func (w *world) settle() {
	for range 100 {
		w.now = w.now.Add(time.Second)
		acts := w.m.decide(core.Time(w.now.UnixNano()))
		if w.onActs != nil {
			w.onActs(acts)
		}
		binds, evicts := slices.Clone(acts.Bind), slices.Clone(acts.Evict)
		release, records := slices.Clone(acts.Release), slices.Clone(acts.Record)
		w.warned = append(w.warned, acts.Warn...)
		chosen, again := slices.Clone(acts.Choose), acts.Wake <= core.Time(w.now.UnixNano())
		asked := slices.Clone(acts.Ask)
		w.m.acts.Drop()
		for _, g := range asked {
			again = w.answer(g) || again
		}
		if len(binds)+len(evicts)+len(chosen)+len(release)+len(records) == 0 && !again {
			return
		}
		w.record(records)
		for _, c := range chosen {
			w.choose(c)
		}
		for _, o := range release {
			w.onRelease(o)
		}
		for i := range binds {
			w.bind(&binds[i])
		}
		for _, e := range evicts {
			w.gone(e.Of.Object.Name)
		}
	}
	w.t.Fatal("it never settles")
}

func (w *world) bind(b *tables.Binding) {
	o := b.Of.Object
	if w.onBind != nil && !w.onBind(b) {
		w.m.bound(o.UID, false, false)
		return
	}
	p := w.pods[o.Namespace+"/"+o.Name]
	if p == nil || p.UID != o.UID {
		w.m.bound(o.UID, false, true)
		return
	}
	if p.Spec.NodeName != "" {
		w.t.Fatalf("%s is bound twice: to %s, then %s", p.Name, p.Spec.NodeName, b.Node)
	}
	p.Spec.NodeName = b.Node
	maps.Copy(p.Annotations, b.Annotations)
	w.binds = append(w.binds, p.Name+">"+b.Node)
	w.m.bound(o.UID, true, false)
	w.m.podSeen(objects.TrimPod(p))
}

// on fails the test unless the pods are where they are said to be, as pod>node,
// pod> for a pod that waits, or a set of nodes of which one pod is on each:
// a,b>x,y.
func (w *world) on(want ...string) {
	w.t.Helper()
	w.settle()
	for _, s := range want {
		names, nodes, _ := strings.Cut(s, ">")
		var at []string
		for name := range strings.SplitSeq(names, ",") {
			at = append(at, w.pods["default/"+name].Spec.NodeName)
		}
		slices.Sort(at)
		if got := strings.Join(at, ","); got != nodes {
			w.t.Errorf("%s: on %q, expected %q", names, got, nodes)
		}
	}
}

// waits fails the test unless the pod's job waits for a reason that says so.
func (w *world) waits(name, reason, text string) {
	w.t.Helper()
	w.settle()
	p := w.m.Pods[w.pods["default/"+name].UID]
	if p.State != tables.PodWaiting {
		w.t.Fatalf("%s does not wait: it is on %s", name, p.Target)
	}
	w.now = w.now.Add(time.Hour)
	w.m.decide(core.Time(w.now.UnixNano()))
	w.m.reports.Report(w.m.engine, p.Group)
	if g := p.Group; g.Waiting.Reason != reason || !strings.Contains(g.Waiting.Detail, text) {
		w.t.Errorf("%s waits: %s: %s; expected %s and %q", name, g.Waiting.Reason, g.Waiting.Detail, reason, text)
	}
}

// labelled gives a pod labels, as k=v.
func labelled(pairs ...string) change[*v1.Pod] {
	return func(p *v1.Pod) {
		for _, pair := range pairs {
			k, v, _ := strings.Cut(pair, "=")
			p.Labels[k] = v
		}
	}
}

// selecting selects by labels, as k=v.
func selecting(pairs ...string) *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for _, pair := range pairs {
		k, v, _ := strings.Cut(pair, "=")
		s.MatchLabels[k] = v
	}
	return s
}

// near makes a pod require others in its domain, apart none.
func near(key string, labels string, with ...change[*v1.PodAffinityTerm]) change[*v1.Pod] {
	return func(p *v1.Pod) {
		a := affinity(p)
		a.PodAffinity = cmp.Or(a.PodAffinity, &v1.PodAffinity{})
		a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, podTerm(key, labels, with))
	}
}

func apart(key string, labels string, with ...change[*v1.PodAffinityTerm]) change[*v1.Pod] {
	return func(p *v1.Pod) {
		a := affinity(p)
		a.PodAntiAffinity = cmp.Or(a.PodAntiAffinity, &v1.PodAntiAffinity{})
		a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, podTerm(key, labels, with))
	}
}

func affinity(p *v1.Pod) *v1.Affinity {
	p.Spec.Affinity = cmp.Or(p.Spec.Affinity, &v1.Affinity{})
	return p.Spec.Affinity
}

func podTerm(key, labels string, with []change[*v1.PodAffinityTerm]) v1.PodAffinityTerm {
	t := v1.PodAffinityTerm{TopologyKey: key, LabelSelector: selecting(labels)}
	for _, f := range with {
		f(&t)
	}
	return t
}

// spread makes a pod be spread with others.
func spread(key, labels string, skew int32, with ...change[*v1.TopologySpreadConstraint]) change[*v1.Pod] {
	return func(p *v1.Pod) {
		c := v1.TopologySpreadConstraint{TopologyKey: key, MaxSkew: skew, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: selecting(labels)}
		for _, f := range with {
			f(&c)
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
}

// foreign makes a pod another scheduler's, on a node, without GPUs.
func foreign(node string) change[*v1.Pod] {
	return func(p *v1.Pod) {
		p.Spec.SchedulerName, p.Spec.NodeName = "default-scheduler", node
		p.Spec.Containers[0].Resources.Requests = amounts("cpu", "1")
	}
}

// asking makes a pod ask for these amounts.
func asking(list ...string) change[*v1.Pod] {
	return func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests = amounts(list...) }
}

// gang makes pods of the same name one gang of at least n.
func gang(name string, n int) change[*v1.Pod] {
	return func(p *v1.Pod) {
		p.Labels[v1alpha1.GangLabel] = name
		p.Annotations[v1alpha1.MinMemberAnnotation] = fmt.Sprint(n)
	}
}

// hostPort makes a pod take a port of its node.
func hostPort(port int32, protocol v1.Protocol, address string) change[*v1.Pod] {
	return func(p *v1.Pod) {
		c := &p.Spec.Containers[0]
		c.Ports = append(c.Ports, v1.ContainerPort{HostPort: port, ContainerPort: port, Protocol: protocol, HostIP: address})
	}
}

// disks is the CSI driver of all volumes.
const disks = "disks.example.com"

// attaches says how many volumes a node can attach, less than none for no limit.
func (w *world) attaches(node string, volumes int32) {
	n := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}}
	d := storagev1.CSINodeDriver{Name: disks, NodeID: node}
	if volumes >= 0 {
		d.Allocatable = &storagev1.VolumeNodeResources{Count: &volumes}
	}
	n.Spec.Drivers = []storagev1.CSINodeDriver{{Name: "files.example.com", NodeID: node}, d}
	inStorage((*storage.Index).ObserveLimits)(w.m, storage.LimitsOf(n))
}

// class adds a storage class whose volumes are made late, or at once.
func (w *world) class(name string, late bool, with ...change[*storagev1.StorageClass]) {
	mode := storagev1.VolumeBindingImmediate
	if late {
		mode = storagev1.VolumeBindingWaitForFirstConsumer
	}
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: disks, VolumeBindingMode: &mode}
	for _, f := range with {
		f(c)
	}
	inStorage((*storage.Index).ObserveClass)(w.m, storage.ClassOf(c))
}

// claim adds a volume claim in the namespace default, or changes it.
func (w *world) claim(name, class string, with ...change[*v1.PersistentVolumeClaim]) {
	c := w.claims["default/"+name]
	if c == nil {
		c = &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: w.uid(), Annotations: map[string]string{}}}
		c.Spec.StorageClassName = &class
		w.claims["default/"+name] = c
	}
	for _, f := range with {
		f(c)
	}
	inStorage((*storage.Index).ObserveClaim)(w.m, storage.ClaimOf(c))
}

// volume adds a volume that is bound to a claim, and reached from nodes where a
// label has one of these values.
func (w *world) volume(claim, label string, values ...string) {
	v := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + claim}}
	v.Spec.ClaimRef = &v1.ObjectReference{Namespace: "default", Name: claim}
	v.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: disks}
	if label != "" {
		v.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: label, Operator: v1.NodeSelectorOpIn, Values: values}},
		}}}}
	}
	inStorage((*storage.Index).ObserveVolume)(w.m, storage.VolumeOf(v))
	w.claim(claim, "", func(c *v1.PersistentVolumeClaim) {
		c.Spec.VolumeName, c.Status.Phase = v.Name, v1.ClaimBound
		c.Annotations[volume.AnnBindCompleted] = "yes"
	})
}

func (w *world) choose(c act.SelectNode) {
	w.claim(c.Claim.Name, "", func(o *v1.PersistentVolumeClaim) {
		if o.UID != c.UID {
			w.t.Errorf("claim %s is another", c.Claim)
		}
		o.Annotations[volume.AnnSelectedNode] = c.Node
	})
	if w.made && c.Node != "" {
		w.volume(c.Claim.Name, host, c.Node)
	}
}

// using makes a pod use volume claims.
func using(claims ...string) change[*v1.Pod] {
	return func(p *v1.Pod) {
		for _, c := range claims {
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: c, VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: c},
			}})
		}
	}
}
