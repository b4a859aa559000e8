package core

import (
	"slices"
	"testing"
)

// What is summed up from start to stop, by GPU model and precedence, is what a count of all
// pods comes to; each evictable pod is listed where it says.
func TestLoadsAreAsCounted(t *testing.T) {
	for seed := range uint64(200) {
		f := newFight(t, seed)
		for range 60 {
			f.step()
			checkLoads(t, f.e)
		}
	}
}

func checkLoads(t *testing.T, e *Engine) {
	t.Helper()
	type sums struct {
		pods      int
		evictable map[precedence]Milli
		bypassed  Milli
	}
	want := map[string]*sums{}
	for _, p := range e.state.Pools() {
		want[p.Model] = &sums{evictable: map[precedence]Milli{}}
	}
	running := 0
	for _, j := range e.jobs.byName {
		if j.count[podRunning] > 0 {
			running++
			if j.run < 0 || e.runs.jobs[j.run] != j {
				t.Fatalf("job %s runs and is not listed", j.Name)
			}
		}
		for i := range j.pods {
			p := &j.pods[i]
			if p.state != podRunning {
				continue
			}
			s := want[e.state.Pool(p.alloc.Node).Model]
			s.pods++
			if !j.evictable() {
				continue
			}
			s.evictable[j.key.precedence] += j.weight(p)
			if j.backfilled {
				s.bypassed += j.weight(p)
			}
			l := e.runs.loadOn(p.alloc.Node)
			if at, ok := l.find(j.key.precedence); !ok || l.evictable[at].pods[p.listed] != p {
				t.Fatalf("pod %d of job %s is not listed where it says", i, j.Name)
			}
		}
	}
	if running != len(e.runs.jobs) {
		t.Fatalf("%d jobs are listed, %d run", len(e.runs.jobs), running)
	}
	for model, s := range want {
		l := &e.runs.loads[e.runs.modelNumber(model)]
		if l.pods != s.pods || l.bypassed != s.bypassed {
			t.Fatalf("model %s: %d pods and %d backfilled milli-GPU, counted %d and %d", model, l.pods, l.bypassed, s.pods, s.bypassed)
		}
		for i := range l.evictable {
			r := &l.evictable[i]
			if r.gpu != s.evictable[r.precedence] {
				t.Fatalf("model %s, %v: %d milli-GPU, counted %d", model, r.precedence, r.gpu, s.evictable[r.precedence])
			}
			delete(s.evictable, r.precedence)
		}
		if len(s.evictable) > 0 {
			t.Fatalf("model %s: %v is not listed", model, s.evictable)
		}
		lowestFirst := func(a, b ranked) int { return b.compare(a.precedence) }
		if !slices.IsSortedFunc(l.evictable, lowestFirst) {
			t.Fatalf("model %s: the lowest precedence is not first", model)
		}
	}
}
