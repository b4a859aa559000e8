package disagg

import (
	"reflect"
	"testing"

	"github.com/muster-sched/muster/disagg/plan"
)

// GPU 1 is the slowest, by the kernel that runs four times, GPU 3 has too little memory, and the plan uses GPU 0.
func TestApart(t *testing.T) {
	p := &plan.Problem{Buffers: []int64{10}, GPUs: []plan.GPU{{Memory: 10}, {}, {Memory: 10}, {Memory: 9}}}
	p.Kernels = []plan.Kernel{{Runs: 1, Seconds: []float64{1, 2, 5, 1}}, {Runs: 4, Seconds: []float64{1, 3, 2, 1}}}
	for _, c := range []struct {
		at   []int
		want [][]int
	}{
		{[]int{0, 0}, [][]int{{0, 0}, {2, 2}, {1, 1}}},
		{[]int{0, 1}, [][]int{{0, 1}, {2, 2}}},
		{[]int{3, 2}, [][]int{{3, 2}, {0, 0}, {1, 1}}},
	} {
		if got := Apart(p, c.at); !reflect.DeepEqual(got, c.want) {
			t.Errorf("apart from %d: %d, want %d", c.at, got, c.want)
		}
	}
	p.GPUs = []plan.GPU{{Memory: 9}, {Memory: 9}, {Memory: 9}, {Memory: 9}}
	if got := Apart(p, []int{0, 1}); len(got) != 1 {
		t.Errorf("no GPU has the memory: %d", got)
	}
}

// The monitor's throughput gives plans by order: that for latency, the GPU that it leaves idle, and that for throughput.
func TestApartUnderTheMonitor(t *testing.T) {
	link := plan.Link{BytesPerSecond: 1e9}
	p := &plan.Problem{GPUs: []plan.GPU{{Name: "A"}, {Name: "B"}}, Links: [][]plan.Link{{{}, link}, {link, {}}}}
	p.Kernels = []plan.Kernel{{Runs: 1, Seconds: []float64{1, 9}}, {Runs: 1, Seconds: []float64{2, 1}}}
	p.Edges = []plan.Edge{{From: 0, To: 1, Bytes: 2e9, Runs: 1}}
	for _, apart := range []bool{true, false} {
		s := &Simulator{Problem: p, InFlight: 2, Concurrent: 1, Apart: apart}
		spec, err := s.Spec(SimMonitor)
		if err != nil {
			t.Fatal(err)
		}
		want := [][]int{{0, 1}}
		if apart {
			want = [][]int{{0, 0}, {1, 1}, {0, 1}}
		}
		if fast := spec.Policies[1]; fast.ByOrder != apart || !reflect.DeepEqual(fast.Plans, want) {
			t.Errorf("apart %t: by order %t, plans %d; want %d", apart, fast.ByOrder, fast.Plans, want)
		}
	}
}
