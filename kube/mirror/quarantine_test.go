package mirror

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/tables"
)

// faulty is an engine with a bug that jobs bring out.
type faulty struct {
	*core.Engine
	bugs *bugs
	at   string
}

// bugs says when a faulty engine panics: in Apply, when it is told of a job, and in
// Decide while one is there that waits, or that runs.
type bugs struct {
	told, waits, runs map[string]bool
	always            bool // in Decide, whatever there is
	builds            int
}

func (f *faulty) Apply(now core.Time, ev core.Event) error {
	if s, ok := ev.(core.JobSubmitted); ok && f.bugs.told[s.Job.Name] {
		f.at = s.Job.Name
		panic("told of a bad job")
	}
	return f.Engine.Apply(now, ev)
}

func (f *faulty) Decide(now core.Time) []core.Decision {
	if f.bugs.always {
		panic("whatever there is")
	}
	for _, list := range []map[string]bool{f.bugs.waits, f.bugs.runs} {
		for name := range list {
			if x, ok := f.Explain(name); ok && (x.Waiting > 0 && f.bugs.waits[name] || x.Running > 0 && f.bugs.runs[name]) {
				f.at = name
				panic("a bad job")
			}
		}
	}
	return f.Engine.Decide(now)
}

func (f *faulty) Working() string { return f.at }

// buggy is a world with two nodes and an engine with bugs.
func buggy(t testing.TB) (*world, *bugs) {
	w := newWorld(t)
	b := &bugs{told: map[string]bool{}, waits: map[string]bool{}, runs: map[string]bool{}}
	w.m.log = slog.New(slog.DiscardHandler)
	w.m.record = nil
	w.infect(b)
	w.node("a", "r1")
	w.node("b", "r1")
	return w, b
}

// podGroup adds a PodGroup in the namespace default, or changes it.
func (w *world) podGroup(name string, with ...change[*schedulingv1beta1.PodGroup]) {
	g := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{}}}
	for _, f := range with {
		f(g)
	}
	w.m.podGroupSeen(objects.TrimPodGroup(g))
}

// inPodGroup makes a pod one of a PodGroup's.
func inPodGroup(name string) change[*v1.Pod] {
	return func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &name} }
}

func (w *world) infect(b *bugs) {
	w.m.newEngine = func(c core.Config) (Engine, error) {
		b.builds++
		e, err := core.New(c)
		return &faulty{Engine: e, bugs: b}, err
	}
	w.m.outdated = true
}

// inQuarantine fails the test unless so many jobs are in quarantine.
func (w *world) inQuarantine(want int) {
	w.t.Helper()
	if got := scraped(w.m.metrics.Registry)["muster_quarantined_jobs"]; got != strconv.Itoa(want) || want != w.m.panics.Jobs {
		w.t.Errorf("%d jobs are in quarantine, and %s counted; expected %d", w.m.panics.Jobs, got, want)
	}
}

// A job for which the engine panics is left out, and told so. The others go on.
func TestQuarantine(t *testing.T) {
	w, b := buggy(t)
	b.waits["default/pod/bad"] = true
	w.pod("first")
	w.pod("bad", asking("nvidia.com/gpu", "2"))
	w.pod("last")
	w.on("first>a", "bad>", "last>a")
	w.waits("bad", tables.ReasonQuarantined, "a bad job")
	w.inQuarantine(1)

	// It is written on the pod, once.
	said := w.says("bad", time.Hour)
	if len(said) > 0 && said[0].Reason != tables.ReasonQuarantined {
		t.Errorf("it is said that %+v", said)
	}

	// What comes later starts, and the engine is not built again for it.
	builds := b.builds
	w.pod("later")
	w.on("later>a", "bad>")
	if b.builds != builds {
		t.Errorf("the engine was built %d times more", b.builds-builds)
	}

	// A new leader finds out by itself.
	w.restart()
	w.m.log = slog.New(slog.DiscardHandler)
	w.infect(b)
	w.pod("again")
	w.on("again>a", "bad>")
	w.inQuarantine(1)

	// What is as it was stays in quarantine; what asks for something else does not.
	w.pod("bad", labelled("app=other"))
	w.on("bad>")
	w.inQuarantine(1)
	b.waits = nil
	w.pod("bad", func(p *v1.Pod) { p.Annotations[v1alpha1.WalltimeAnnotation] = "1h" })
	w.on("bad>a")
	w.inQuarantine(0)
}

// A job that is deleted leaves quarantine, and nothing of it is left.
func TestQuarantineEndsWithTheJob(t *testing.T) {
	w, b := buggy(t)
	b.told["default/pod/bad"] = true
	w.pod("bad")
	w.pod("good")
	w.on("bad>", "good>a")
	w.inQuarantine(1)
	w.gone("bad")
	w.settle()
	w.inQuarantine(0)
	b.told = nil
	w.pod("bad")
	w.on("bad>a")
}

// The devices of a job in quarantine are not free, even when the engine must not know
// of it.
func TestQuarantineKeepsDevices(t *testing.T) {
	for _, untold := range []bool{false, true} {
		w, b := buggy(t)
		w.pod("bad", asking("nvidia.com/gpu", "6"), on("a"))
		w.on("bad>a")
		b.waits["default/pod/bad"] = true
		b.runs["default/pod/bad"], b.told["default/pod/bad"] = !untold, untold
		w.m.outdated = true
		w.pod("large", asking("nvidia.com/gpu", "4"))
		w.pod("small", asking("nvidia.com/gpu", "8"))
		w.m.decide(w.m.Now)
		b.runs = nil // as it is kept it does no harm
		w.settle()
		w.inQuarantine(1)
		if g := w.m.Pods[w.pods["default/bad"].UID].Group; g.Quarantine.Untold != untold || g.Submitted == untold {
			t.Errorf("untold %v: %+v, submitted %v", untold, g.Quarantine, g.Submitted)
		}
		for name, p := range w.pods {
			if p.Spec.NodeName == "a" && name != "default/bad" {
				t.Errorf("untold %v: %s is on the node of the bad job", untold, name)
			}
		}
		if w.pods["default/large"].Spec.NodeName != "b" && w.pods["default/small"].Spec.NodeName != "b" {
			t.Errorf("untold %v: nobody is on the other node: %v", untold, w.binds)
		}
		w.gone("bad")
		w.settle()
		w.inQuarantine(0)
		w.on("large,small>a,b")
	}
}

// Jobs that fail for the first time make the others wait for no time: the engine is
// built again once for each.
func TestManyInQuarantine(t *testing.T) {
	w, b := buggy(t)
	w.settle()
	const jobs = 40
	for i := range jobs {
		name := fmt.Sprint("bad", i)
		b.waits["default/pod/"+name] = true
		w.pod(name)
	}
	w.pod("good")
	before, now := b.builds, w.m.Now
	for {
		acts := w.m.decide(now)
		for i := range acts.Bind {
			w.bind(&acts.Bind[i])
		}
		again := acts.Wake <= now
		w.m.acts.Drop()
		if !again {
			break
		}
	}
	if got := b.builds - before; got != jobs {
		t.Errorf("the engine was built %d times, expected %d", got, jobs)
	}
	w.inQuarantine(jobs)
	w.on("good>a")
}

// A job that fails again and again waits for longer and longer, whether its author
// edits it or makes it again. What others submit meanwhile starts.
func TestQuarantineOfAJobThatIsEdited(t *testing.T) {
	for _, how := range []string{"edited", "made again"} {
		t.Run(how, func(t *testing.T) {
			w, b := buggy(t)
			b.waits["default/pod/bad"] = true
			w.pod("bad")
			w.settle()
			before, began := b.builds, w.now.Add(time.Second)
			var at []int // seconds at which the engine was built again
			for second := range 3 * 3600 {
				w.now = began.Add(time.Duration(second) * time.Second)
				if how == "made again" {
					w.gone("bad")
					w.m.decide(core.Time(w.now.UnixNano())) // it is seen to be gone
					w.m.acts.Drop()
				}
				w.pod("bad", func(p *v1.Pod) { p.Annotations[v1alpha1.CheckpointIntervalAnnotation] = fmt.Sprintf("%ds", second+60) })
				good := fmt.Sprint("good", second)
				if second%600 == 0 {
					w.pod(good)
				}
				w.now = began.Add(time.Duration(second)*time.Second + time.Second/2) // whatever pods were made since
				for again := true; again; {
					acts := w.m.decide(core.Time(w.now.UnixNano()))
					binds := slices.Clone(acts.Bind)
					again = acts.Wake <= core.Time(w.now.UnixNano())
					w.m.acts.Drop()
					for i := range binds {
						w.bind(&binds[i])
					}
				}
				if b.builds > before {
					at, before = append(at, second), b.builds
				}
				if second%600 == 0 {
					if w.pods["default/"+good].Spec.NodeName == "" {
						t.Fatalf("another job does not start after %d s", second)
					}
					w.gone(good)
				}
			}
			if want := []int{0, 10, 30, 70, 150, 310, 630, 1270, 2550, 5110, 8710}; !slices.Equal(at, want) {
				t.Errorf("the engine was built again after %v s; want %v", at, want)
			}
			g := w.m.Pods[w.pods["default/bad"].UID].Group
			if w.m.reports.Report(w.m.engine, g); !strings.Contains(g.Waiting.Detail, "it has changed, and the next attempt is at 1970-01-12T17:") {
				t.Errorf("it waits: %s", g.Waiting.Detail)
			}
			b.waits = nil
			w.now = w.now.Add(time.Hour)
			w.on("bad>a")
			w.inQuarantine(0)
		})
	}
}

// The quarantine ends when a pod goes or comes, and when the PodGroup changes: that may
// have been the cause.
func TestQuarantineEndsWithTheCause(t *testing.T) {
	for what, c := range map[string]struct {
		belongs change[*v1.Pod]
		job     string
		mended  func(*world)
	}{
		"the pod that asked for too much goes": {
			ownedBy("apps/v1", "ReplicaSet", "j"), "default/replicaset/j", func(w *world) { w.gone("j-1") },
		},
		"one of several that are alike goes": {
			ownedBy("apps/v1", "ReplicaSet", "j"), "default/replicaset/j", func(w *world) { w.gone("j-2") },
		},
		"one more that is alike comes": {
			ownedBy("apps/v1", "ReplicaSet", "j"), "default/replicaset/j", func(w *world) { w.pod("j-3", ownedBy("apps/v1", "ReplicaSet", "j")) },
		},
		"its PodGroup changes": {
			inPodGroup("g"), "default/podgroup/g", func(w *world) {
				w.podGroup("g", func(g *schedulingv1beta1.PodGroup) { g.Annotations[v1alpha1.WalltimeAnnotation] = "1h" })
			},
		},
	} {
		t.Run(what, func(t *testing.T) {
			w, b := buggy(t)
			w.podGroup("g")
			b.waits[c.job] = true
			w.pod("j-0", c.belongs)
			w.pod("j-1", c.belongs, asking(v1alpha1.GPUResource, "3"))
			w.pod("j-2", c.belongs)
			w.on("j-0,j-1,j-2>,,")
			w.inQuarantine(1)
			w.podGroup("g") // as it was
			w.on("j-0>")
			w.inQuarantine(1)
			b.waits = nil
			c.mended(w)
			w.on("j-0>a")
			w.inQuarantine(0)
		})
	}
}

// A panic for which no job is to blame is survived once. If it comes again, the process
// ends, as it does of any other bug.
func TestPanicWithoutJob(t *testing.T) {
	w, b := buggy(t)
	b.always = true
	w.m.decide(w.m.Now)
	b.always = false
	w.pod("good")
	w.on("good>a")
	b.always = true
	defer func() {
		if recover() == nil {
			t.Error("the scheduler goes on")
		}
	}()
	w.settle()
}
