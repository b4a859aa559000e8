package mirror

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/tables"
)

const host = "kubernetes.io/hostname"

// twoRacks has nodes a and b in rack 1, c and d in rack 2.
func twoRacks(t testing.TB) *world {
	w := newWorld(t)
	w.node("a", "1")
	w.node("b", "1")
	w.node("c", "2")
	w.node("d", "2")
	return w
}

func on(node string) change[*v1.Pod] {
	return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{host: node} }
}

func TestAffinity(t *testing.T) {
	w := twoRacks(t)
	w.pod("db", labelled("app=db"), on("d"))
	w.on("db>d")
	w.pod("beside", near(host, "app=db"))
	w.pod("around", near(rack.Label, "app=db"), asking("nvidia.com/gpu", "8"))
	w.pod("lonely", near(host, "app=none"))
	w.on("beside>d", "around>c", "lonely>")
	w.waits("lonely", "Affinity", "0 of them where selectors, taints and affinity allow")

	// It is not of the group that it wants to be near until its label says so.
	w.pod("lonely", labelled("app=none"))
	w.settle()
	if w.pods["default/lonely"].Spec.NodeName == "" {
		t.Error("the first pod of a group does not start")
	}
}

// All affinities must be satisfied by pods that all of them mean.
func TestAffinityOfSeveralTerms(t *testing.T) {
	w := twoRacks(t)
	w.pod("x", labelled("app=x"), on("a"))
	w.pod("y", labelled("tier=y"), on("a"))
	w.pod("both", near(host, "app=x"), near(rack.Label, "tier=y"))
	w.on("x>a", "y>a", "both>")
	w.pod("xy", labelled("app=x", "tier=y"), on("c"))
	w.on("both>c")
}

func TestAffinityWaitsForPodsToCome(t *testing.T) {
	w := twoRacks(t)
	w.pod("late", near(host, "app=db"))
	w.on("late>")
	w.pod("db", labelled("app=db"), on("c"))
	w.on("db>c", "late>c")
}

// Pods that run when a selector comes are labelled then.
func TestRunningPodsAreRelabelled(t *testing.T) {
	w := twoRacks(t)
	w.pod("db", labelled("app=db"), on("d"))
	w.on("db>d")
	if told := w.m.Jobs["default/pod/db"].Tasks[0].Around; len(told.Labels) != 0 {
		t.Fatalf("labels %q that nobody asks for", told.Labels)
	}
	w.pod("web", near(host, "app=db"))
	w.on("web>d")
	w.pod("db", labelled("app=other"))
	w.pod("web2", near(host, "app=db"))
	w.on("web2>")
	w.pod("db", labelled("app=db"))
	w.on("web2>d")
}

func TestAntiAffinity(t *testing.T) {
	w := twoRacks(t)
	for _, name := range []string{"p0", "p1", "p2", "p3", "p4"} {
		w.pod(name, labelled("app=p"), apart(host, "app=p"))
	}
	w.on("p0,p1,p2,p3>a,b,c,d", "p4>")
	w.gone("p2")
	w.settle()
	if w.pods["default/p4"].Spec.NodeName == "" {
		t.Error("a place that became free is not used")
	}
}

// Anti-affinity of a pod that runs keeps off those that it means, though they say
// nothing themselves.
func TestAntiAffinityHoldsBothWays(t *testing.T) {
	w := twoRacks(t)
	w.pod("quiet", labelled("app=quiet"), apart(rack.Label, "noise=yes"), on("b"))
	w.on("quiet>b")
	w.pod("loud", labelled("noise=yes"), on("a"))
	w.pod("loud2", labelled("noise=yes"))
	w.pod("other", on("a"))
	w.on("loud>", "other>a")
	if at := w.pods["default/loud2"].Spec.NodeName; at != "c" && at != "d" {
		t.Errorf("loud2 is on %q, expected another rack than b's", at)
	}
	w.gone("quiet")
	w.on("loud>a")
}

func TestAntiAffinityHoldsBothWaysForGangs(t *testing.T) {
	w := twoRacks(t)
	w.pod("quiet", apart(rack.Label, "noise=yes"), on("b"))
	for _, name := range []string{"w0", "w1", "w2"} {
		w.pod(name, gang("loud", 3), labelled("noise=yes"), asking("nvidia.com/gpu", "8"))
	}
	w.on("quiet>b", "w0>", "w1>", "w2>")
	w.node("e", "2")
	w.on("w0,w1,w2>c,d,e")
}

// Pods of other schedulers are seen, though they take no GPUs.
func TestTermsAndPodsOfOtherSchedulers(t *testing.T) {
	w := twoRacks(t)
	w.pod("cache", foreign("d"), labelled("app=cache"))
	w.pod("guard", foreign("a"), labelled("app=guard"), apart(host, "app=web"))
	w.settle()
	if w.m.Pods[w.pods["default/cache"].UID].Group != nil {
		t.Error("a pod that restrains nobody is a job")
	}
	w.pod("web", labelled("app=web"), on("a"))
	w.pod("reader", near(host, "app=cache"))
	w.on("web>", "reader>d")
	w.gone("guard")
	w.on("web>a")
	n := w.m.Nodes["d"]
	if n.Others.CPUMilli != 0 || n.Count != 0 {
		t.Errorf("a pod that became a job is counted on its node too: %+v, %d pods", n.Others, n.Count)
	}
}

func TestNamespaces(t *testing.T) {
	w := twoRacks(t)
	w.m.namespaceSeen(&objects.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "prod"}, Labels: map[string]string{"env": "prod"}})
	w.pod("prod/db", labelled("app=db"), on("c"))
	w.pod("own", near(host, "app=db"))
	w.pod("named", near(host, "app=db", func(t *v1.PodAffinityTerm) { t.Namespaces = []string{"prod"} }))
	w.pod("chosen", near(host, "app=db", func(t *v1.PodAffinityTerm) { t.NamespaceSelector = selecting("env=prod") }))
	w.pod("any", near(host, "app=db", func(t *v1.PodAffinityTerm) { t.NamespaceSelector = &metav1.LabelSelector{} }))
	w.pod("test", near(host, "app=db", func(t *v1.PodAffinityTerm) { t.NamespaceSelector = selecting("env=test") }))
	w.on("own>", "named>c", "chosen>c", "any>c", "test>")
	w.m.namespaceSeen(&objects.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "prod"}, Labels: map[string]string{"env": "test"}})
	w.on("test>c", "own>")
}

func TestSpread(t *testing.T) {
	w := twoRacks(t)
	for _, name := range []string{"p0", "p1", "p2", "p3"} {
		w.pod(name, labelled("app=p"), spread(rack.Label, "app=p", 1))
	}
	w.settle()
	racks := map[string]int{}
	for _, name := range []string{"p0", "p1", "p2", "p3"} {
		racks[w.nodes[w.pods["default/"+name].Spec.NodeName].Labels[rack.Label]]++
	}
	if racks["1"] != 2 || racks["2"] != 2 {
		t.Errorf("pods by rack: %v, expected 2 in each", racks)
	}
	three := int32(3)
	for _, name := range []string{"q0", "q1", "q2"} {
		w.pod(name, labelled("app=q"), spread(rack.Label, "app=q", 1, func(c *v1.TopologySpreadConstraint) { c.MinDomains = &three }))
	}
	w.on("q2>")
	w.node("e", "3")
	w.on("q2>e")
	w.pod("soft", labelled("app=p"), on("a"), spread(rack.Label, "app=p", 1, func(c *v1.TopologySpreadConstraint) { c.WhenUnsatisfiable = v1.ScheduleAnyway }))
	w.on("soft>a")
}

func TestHostPorts(t *testing.T) {
	w := newWorld(t)
	w.node("a", "1")
	w.pod("ds", foreign("a"), hostPort(9100, "TCP", ""))
	w.pod("all", hostPort(80, "TCP", ""))
	w.pod("one", hostPort(80, "TCP", "10.0.0.1"))
	w.pod("udp", hostPort(80, "UDP", "10.0.0.1"))
	w.pod("same", hostPort(80, "UDP", "10.0.0.1"))
	w.pod("two", hostPort(80, "UDP", "10.0.0.2"))
	w.pod("every", hostPort(80, "UDP", "0.0.0.0"))
	w.pod("scrape", hostPort(9100, "TCP", "127.0.0.1"))
	w.on("all>a", "one>", "udp>a", "same>", "two>a", "every>", "scrape>")
	w.gone("all")
	w.gone("udp")
	w.gone("ds")
	w.on("one>a", "same>a", "every>", "scrape>a")
}

func TestTermsThatCannotBe(t *testing.T) {
	w := twoRacks(t)
	w.pod("zone", near("topology.kubernetes.io/zone", "app=x"))
	w.waits("zone", tables.ReasonMisconfigured, "topologyKey topology.kubernetes.io/zone is no label of any node")
	w.pod("bad", func(p *v1.Pod) {
		near(host, "app=x")(p)
		p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchExpressions =
			[]metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}
	})
	w.waits("bad", tables.ReasonMisconfigured, "pod affinity: labelSelector:")
	other := v1.NodeInclusionPolicy("Prefer")
	w.pod("taints", spread(host, "app=x", 1, func(c *v1.TopologySpreadConstraint) { c.NodeTaintsPolicy = &other }))
	w.waits("taints", tables.ReasonMisconfigured, "nodeTaintsPolicy Prefer is unknown")
}

// A topologyKey may be any label of nodes, also one that the first node gets when pods wait for it.
func TestTermsOfAnyLabel(t *testing.T) {
	const zone = "topology.kubernetes.io/zone"
	w := twoRacks(t)
	w.pod("db", labelled("app=db"), on("a"))
	w.pod("near", near(zone, "app=db"))
	w.pod("even", labelled("app=e"), spread(zone, "app=e", 1))
	w.pod("apart", labelled("app=x"), apart(zone, "app=x"))
	w.pod("also", labelled("app=x"), apart(zone, "app=x"))
	w.waits("near", tables.ReasonMisconfigured, "topologyKey "+zone+" is no label of any node")
	w.waits("even", tables.ReasonMisconfigured, "topologyKey "+zone+" is no label of any node")
	for _, name := range []string{"a", "b"} {
		w.node(name, "1", func(n *v1.Node) { n.Labels[zone] = "z" })
	}
	w.settle()
	for _, name := range []string{"near", "even"} {
		if on := w.pods["default/"+name].Spec.NodeName; on != "a" && on != "b" {
			t.Errorf("%s is on %q, expected a node of zone z", name, on)
		}
	}
	w.pod("third", labelled("app=x"), apart(zone, "app=x"), func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{zone: "z"} })
	w.pod("fourth", labelled("app=x"), apart(zone, "app=x"), func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{zone: "z"} })
	w.waits("fourth", "Affinity", "")
}

// Roles of a gang are meant, and mean others, each for itself.
func TestMixedJobs(t *testing.T) {
	w := twoRacks(t)
	w.pod("m", gang("mixed", 2), labelled("role=master"), asking("nvidia.com/gpu", "8"))
	w.pod("w", gang("mixed", 2), labelled("role=worker"), asking("nvidia.com/gpu", "8"))
	w.on("m>a", "w>b")
	w.pod("near", near(rack.Label, "role=master"), asking("cpu", "1"), on("b"))
	w.pod("beside", near(host, "role=worker"), asking("cpu", "1"))
	w.pod("apart", apart(host, "role=master"), asking("cpu", "1"), on("b"))
	w.pod("forbidden", apart(host, "role=master"), asking("cpu", "1"), on("a"))
	w.on("near>b", "beside>b", "apart>b", "forbidden>")

	// One that wants to be near its like starts with those that do not.
	w.pod("m2", gang("self", 2), labelled("role=self"), near(host, "role=self"), asking("nvidia.com/gpu", "1"))
	w.pod("w2", gang("self", 2), asking("nvidia.com/gpu", "8"))
	w.settle()
	if w.pods["default/m2"].Spec.NodeName == w.pods["default/w2"].Spec.NodeName {
		t.Error("the gang does not run as it should")
	}
}

// A launcher goes beside workers that keep apart from each other.
func TestLauncherBesideWorkers(t *testing.T) {
	w := twoRacks(t)
	for _, n := range []string{"c", "d"} {
		w.node(n, "", func(n *v1.Node) { n.Spec.Unschedulable = true })
	}
	w.pod("launcher", gang("mpi", 3), labelled("app=mpi"), asking("cpu", "1"))
	for _, name := range []string{"w0", "w1"} {
		w.pod(name, gang("mpi", 3), labelled("app=mpi", "role=worker"), apart(host, "role=worker"), asking("nvidia.com/gpu", "8"))
	}
	w.on("w0,w1>a,b")
	if w.pods["default/launcher"].Spec.NodeName == "" {
		t.Error("the launcher does not start")
	}
}

// A selector that means some pods of a role alone, which run, makes them a role of
// their own: the engine is told of the job again, as it is.
func TestRoleParts(t *testing.T) {
	w := twoRacks(t)
	w.pod("m", gang("mixed", 3), labelled("role=master"), asking("nvidia.com/gpu", "8"))
	for _, name := range []string{"w0", "w1"} {
		w.pod(name, gang("mixed", 3), labelled("role=worker"), asking("nvidia.com/gpu", "8"))
	}
	w.pod("more", gang("mixed", 3), labelled("role=worker"), asking("nvidia.com/gpu", "8"), on("nowhere"))
	w.on("m>a", "w0>b", "w1>c", "more>")
	g := w.m.Jobs["default/gang/mixed"]
	if len(g.Tasks) != 2 {
		t.Fatalf("%d roles, expected one and that of the pod with a selector", len(g.Tasks))
	}
	w.pod("near", near(host, "role=master"), asking("cpu", "1"))
	w.on("near>a", "m>a", "w0>b", "w1>c")
	if len(g.Tasks) != 3 {
		t.Fatalf("%d roles, expected one of the master's more", len(g.Tasks))
	}
	if x, ok := w.m.engine.Explain(g.Job); !ok || x.Running != 3 || x.Waiting != 1 {
		t.Errorf("the engine has %+v of the job", x)
	}
	for _, name := range []string{"m", "w0", "w1"} {
		if p := w.m.Pods[w.pods["default/"+name].UID]; p.Devices != 0xff {
			t.Errorf("pod %s has devices %b", name, p.Devices)
		}
	}

	// One of a role that is relabelled leaves it too.
	w.pod("w1", labelled("role=master"))
	w.pod("near2", near(host, "role=master"), asking("cpu", "1"), on("c"))
	w.on("near2>c")
}

// What a pod takes that is resized before the engine knows it is what it takes then,
// also where devices are published.
func TestResizedBeforeItsGang(t *testing.T) {
	d := newDevices(t)
	d.published("a", "NVIDIA H800", 4)
	d.node("b", "r1")
	d.pod("x", gang("g", 2))
	d.on("x>")
	d.pod("x", asking("cpu", "64", v1alpha1.GPUResource, "1"))
	d.pod("y", gang("g", 2))
	d.on("x,y>,")
	d.pod("x", asking("cpu", "63", v1alpha1.GPUResource, "1"))
	d.on("x,y>b,b")
}

// A gang that waits without some of its pods, as they did not come, does so still when
// it is told of again.
func TestRolePartsOfSoftGang(t *testing.T) {
	w := newWorld(t)
	w.node("n", "1")
	for _, name := range []string{"a", "b"} {
		w.pod(name, member("worker"), noted("yunikorn.apache.org/task-groups", roles), labelled("who="+name), asking("nvidia.com/gpu", "16"),
			noted("yunikorn.apache.org/schedulingPolicyParameters", "placeholderTimeoutInSeconds=30"))
	}
	w.settle()
	w.now = w.now.Add(time.Hour)
	w.settle()
	g := w.m.Pods[w.pods["default/a"].UID].Group
	if !g.Submitted || len(g.Tasks) != 1 {
		t.Fatalf("the gang is submitted: %v, with %d roles", g.Submitted, len(g.Tasks))
	}
	w.pod("near", near(host, "who=a"))
	w.settle()
	if !g.Submitted || !g.Soft || len(g.Tasks) != 2 {
		t.Errorf("the gang is submitted: %v, starts pod by pod: %v, with %d roles", g.Submitted, g.Soft, len(g.Tasks))
	}
	w.waits("a", core.NoNode.String(), "")
	if err := w.m.rebuild(); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if !g.Submitted || !g.Soft {
		t.Errorf("a new engine is told of the gang: %v, starts pod by pod: %v", g.Submitted, g.Soft)
	}
}

// The pods of a job that is told of again while some of them leave leave still.
func TestRolePartsWhilePodsLeave(t *testing.T) {
	w := twoRacks(t)
	low := func(p *v1.Pod) { p.Annotations[v1alpha1.ClassAnnotation] = "LP" }
	for _, name := range []string{"m", "w0", "w1", "w2"} {
		w.pod(name, gang("low", 4), low, labelled("role="+name[:1]), asking("nvidia.com/gpu", "8"))
	}
	w.on("m>a", "w0>b", "w1>c", "w2>d")
	w.pod("high", func(p *v1.Pod) { p.Spec.Priority = new(int32(9)) }, asking("nvidia.com/gpu", "8"), on("c"))
	w.now = w.now.Add(24 * time.Hour)
	decide := func() (evicted, bound int) {
		w.now = w.now.Add(time.Second)
		acts := w.m.decide(core.Time(w.now.UnixNano()))
		defer w.m.acts.Drop()
		return len(acts.Evict), len(acts.Bind)
	}
	if evicted, bound := decide(); evicted != 4 || bound != 0 {
		t.Fatalf("%d evictions, %d bindings, expected the gang's 4, and none", evicted, bound)
	}
	w.pod("near", near(host, "role=m"), asking("cpu", "1"), on("a"))
	evicted, bound := decide()
	if g := w.m.Jobs["default/gang/low"]; evicted != 0 || bound != 0 || len(g.Tasks) != 2 || !g.Draining {
		t.Fatalf("%d evictions, %d bindings, %d roles, draining %v; expected two roles, and no pod near one that leaves", evicted, bound, len(g.Tasks), g.Draining)
	}
	for _, name := range []string{"m", "w0", "w1", "w2"} {
		w.gone(name)
	}
	w.on("high>c")
}

// An engine that is built again knows the same.
func TestTermsAfterRebuild(t *testing.T) {
	w := twoRacks(t)
	w.pod("quiet", labelled("app=quiet"), apart(rack.Label, "noise=yes"), on("b"))
	w.pod("db", labelled("app=db"), on("d"))
	w.pod("ds", foreign("c"), hostPort(80, "TCP", ""))
	w.on("quiet>b", "db>d")
	if err := w.m.rebuild(); err != nil {
		t.Fatal(err)
	}
	w.pod("loud", labelled("noise=yes"), on("a"))
	w.pod("web", near(host, "app=db"))
	w.pod("port", hostPort(80, "TCP", ""), on("c"))
	w.on("loud>", "web>d", "port>")
}

// What nobody uses any more is forgotten.
func TestTermsAreForgotten(t *testing.T) {
	w := twoRacks(t)
	w.pod("a", labelled("app=a"), apart(host, "app=b"), near(host, "app=a"), hostPort(80, "TCP", ""))
	w.pod("f", foreign("a"), hostPort(81, "TCP", ""))
	w.settle()
	w.gone("a")
	w.gone("f")
	w.settle()
	if n := w.m.Peers.Len(); n != 0 {
		t.Errorf("left: %d", n)
	}
}
