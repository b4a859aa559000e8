package disagg

import (
	"reflect"
	"testing"

	"github.com/muster-sched/muster/disagg/plan"
)

// GPU 1 is the slowest, GPU 3 has too little memory, and the plan uses GPU 0.
func TestApart(t *testing.T) {
	p := &plan.Problem{Buffers: []int64{10}, GPUs: []plan.GPU{{Memory: 10}, {}, {Memory: 10}, {Memory: 9}}}
	p.Kernels = []plan.Kernel{{Runs: 1, Seconds: []float64{1, 9, 5, 1}}, {Runs: 4, Seconds: []float64{1, 3, 2, 1}}}
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
