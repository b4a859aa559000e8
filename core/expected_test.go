package core

import "testing"

// What HP jobs are expected to have is the mean of the same hours of the days before, the last one counting two
// fifths, and what they have now beyond the mean, of which a fifth goes with every hour. The hour in which
// the engine began is not counted, nor is anything forecast before a whole day was seen.
func TestExpectedHP(t *testing.T) {
	const hour = 3600 * Second
	e, err := New(Config{Policy: Policy{Spot: Spot{Period: 24 * hour}}, Levels: []string{"leaf"}})
	if err != nil {
		t.Fatal(err)
	}
	apply := func(at Time, ev Event) {
		t.Helper()
		if err := e.Apply(at, ev); err != nil {
			t.Fatal(err)
		}
		e.Decide(at)
	}
	apply(hour/2, QueueSet{Queue: Queue{Name: "q", Weight: 1}})
	apply(hour/2, NodeAdded{Node: Node{Name: "a", Model: "H800", GPUs: 8, CPUMilli: 1000, Domains: []string{"l"}}})
	run := func(name string, class Class, gpus int, from, to Time) {
		task := Task{Pods: 1}
		task.GPU = Milli(gpus) * WholeGPU
		apply(from, JobSubmitted{Job: Job{Name: name, Queue: "q", Class: class, Tasks: []Task{task}}})
		apply(to, JobEnded{Job: name})
	}
	run("lp", LP, 2, 2*hour, 3*hour) // does not count
	run("day1", HP, 4, 9*hour, 11*hour+hour/2)
	if apply(24*hour, Tick{}); e.Expected() != nil {
		t.Error("there is a forecast before a whole day was seen")
	}
	run("day2", HP, 8, 33*hour, 34*hour)
	apply(48*hour, Tick{})
	x := e.Expected()
	if len(x) != 1 || x[0].Model != "H800" {
		t.Fatalf("got %v", x)
	}
	want := map[int]Milli{9: (3*4000 + 2*8000) / 5, 10: 3 * 4000 / 5, 11: 3 * 2000 / 5}
	for h, gpu := range x[0].GPU {
		if gpu != want[h] {
			t.Errorf("in %d hours %d are expected, not %d", h, gpu, want[h])
		}
	}

	// Five GPUs more than usual: in an hour four of these are left.
	task := Task{Pods: 1}
	task.GPU = 5 * WholeGPU
	apply(48*hour, JobSubmitted{Job: Job{Name: "more", Queue: "q", Tasks: []Task{task}}})
	if x := e.Expected()[0].GPU; x[0] != 5000 || x[1] != 4000 || x[2] != 3200 {
		t.Errorf("got %v", x)
	}
}
