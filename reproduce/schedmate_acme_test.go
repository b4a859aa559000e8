package reproduce

import (
	"context"
	"testing"
)

// smallAcme is half a day of training on a tenth of Seren, with more to do than there is time.
func smallAcme(seed uint64) acmeTrial {
	a := acmeDefault(1500, seed, nil)
	a.gpus, a.load, a.training, a.spread = 128*8, 1.5, true, 0.25
	return a
}

// All jobs end under each arm, with their failures, and again in the same way. Who knows the code of jobs orders them better than who knows users and GPUs.
func TestAcmeTrial(t *testing.T) {
	a := smallAcme(1)
	a.failures, a.passing = 20, true
	of := map[string]acmeOutcome{}
	for _, arm := range append(acmeArms(0), acmeArm{name: "again", policy: "LucidSJF", predicts: "history", handled: true}) {
		out, err := a.run(context.Background(), arm)
		if err != nil {
			t.Fatal(err)
		}
		of[arm.name] = out
	}
	handled := of["SchedMate with its Failure Handler"]
	if handled != of["again"] {
		t.Errorf("again: %+v, before %+v", of["again"], handled)
	}
	if sm := of["SchedMate"]; sm.failed.Failures == 0 || sm.failed.Restarted != 0 || handled.failed.Restarted == 0 || handled.jct >= sm.jct {
		t.Errorf("SchedMate %+v, with its Failure Handler %+v", sm, handled)
	}
	blind := a
	blind.code = 0
	if out, err := blind.run(context.Background(), acmeArms(0)[4]); err != nil || out.jct <= of["SchedMate"].jct {
		t.Errorf("mean JCT %.0f, without the code of any job %.0f, %v", of["SchedMate"].jct, out.jct, err)
	}
	fifo, exact, ours, rolling := of["FIFO"].jct, of["SJF, exact run times"].jct, of["SchedMate"].jct, of["SJF, rolling estimate"].jct
	if !(0 < exact && exact < ours && ours < rolling && rolling < fifo) {
		t.Errorf("mean JCT: exact run times %.0f, the advisor's %.0f, the rolling estimate's %.0f, FIFO %.0f: expected this order", exact, ours, rolling, fifo)
	}
}

// What is read in code is what is written there, for as many jobs as can be read; who cannot read any knows less.
func TestAcmeCode(t *testing.T) {
	a := smallAcme(1)
	jobs := a.make()
	read, n := a.read(jobs), 0
	for i := range jobs {
		switch got := read(&jobs[i].Job); {
		case got.Model.Name == "":
		case got.Model.Name != jobs[i].code.Model.Name || got.Dataset != jobs[i].code.Dataset:
			t.Fatalf("job %d: read %+v, written %+v", i, got, jobs[i].code)
		default:
			n++
		}
	}
	if share := float64(n) / float64(len(jobs)); share < 0.8 || share > 0.9 {
		t.Errorf("the code of %.2f of the jobs was read, want about %g", share, a.code)
	}
}

// The rows compare the default trial with the paper, and say what others gave.
func TestAcmeRows(t *testing.T) {
	of := map[string]acmeOutcome{
		"FIFO": {jct: 400}, "Tiresias": {jct: 100}, "QSSF, rolling estimate": {jct: 200}, "SchedMate": {jct: 80}, "SchedMate with its Failure Handler": {jct: 70},
	}
	rows := acmeRows(0, of, 50)
	for i, want := range []struct {
		ours   float64
		within bool
	}{{60, true}, {20, true}, {12.5, true}, {75, true}} {
		if r := rows[i]; r.Ours < want.ours-1e-9 || r.Ours > want.ours+1e-9 || r.Within != want.within {
			t.Errorf("%s: %g, within %v; want %g, %v", r.Figure, r.Ours, r.Within, want.ours, want.within)
		}
	}
	of["SchedMate"] = acmeOutcome{jct: 160}
	if rows := acmeRows(0, of, 50); rows[0].Within || rows[1].Within || rows[2].Within {
		t.Errorf("a JCT twice as long is within the bands: %+v", rows[:3])
	}
	for _, r := range acmeRows(1, of, 50) {
		if r.judged() {
			t.Errorf("%s: the paper says nothing of this", r.Figure)
		}
	}
}
