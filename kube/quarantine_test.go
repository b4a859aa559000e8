package kube

import (
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
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

func (w *world) infect(b *bugs) {
	w.m.newEngine = func(c core.Config) (scheduling, error) {
		b.builds++
		e, err := core.New(c)
		return &faulty{Engine: e, bugs: b}, err
	}
	w.m.outdated = true
}

// inQuarantine fails the test unless so many jobs are in quarantine.
func (w *world) inQuarantine(want int) {
	w.t.Helper()
	if got := scraped(w.m.metrics.registry)["muster_quarantined_jobs"]; got != strconv.Itoa(want) || want != w.m.panics.count {
		w.t.Errorf("%d jobs are in quarantine, and %s counted; expected %d", w.m.panics.count, got, want)
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
	w.waits("bad", ReasonQuarantined, "a bad job")
	w.inQuarantine(1)

	// It is written on the pod, once.
	said := w.says("bad", time.Hour)
	if len(said) > 0 && said[0].reason != ReasonQuarantined {
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
		w.m.decide(w.m.now)
		b.runs = nil // as it is kept it does no harm
		w.settle()
		w.inQuarantine(1)
		if g := w.m.pods[w.pods["default/bad"].UID].group; g.quarantine.untold != untold || g.submitted == untold {
			t.Errorf("untold %v: %+v, submitted %v", untold, g.quarantine, g.submitted)
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

// Engines are not built again without end.
func TestQuarantineIsNotEndless(t *testing.T) {
	w, b := buggy(t)
	w.settle()
	const jobs = 3 * repairs
	for i := range jobs {
		name := "bad" + strings.Repeat("x", i)
		b.waits["default/pod/"+name] = true
		w.pod(name)
	}
	w.pod("good")
	before := b.builds
	now := w.m.now
	var wake core.Time
	for range 100 { // at one moment
		wake = w.m.decide(now).wake
		w.m.done()
	}
	if got := b.builds - before; got != repairs {
		t.Errorf("the engine was built %d times at once, expected %d", got, repairs)
	}
	if wake <= now || wake > now+repairPeriod {
		t.Errorf("the next time is %v after, expected within %v", wake-now, repairPeriod)
	}
	for range 10 {
		w.now = w.now.Add(time.Minute)
		w.settle()
	}
	w.inQuarantine(jobs)
	w.on("good>a")
}

// A panic for which no job is to blame is survived once. If it comes again, the process
// ends, as it does of any other bug.
func TestPanicWithoutJob(t *testing.T) {
	w, b := buggy(t)
	b.always = true
	w.m.decide(w.m.now)
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
