package frag

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core/cluster"
)

// The example of docs/fragmentation.md.
func example() []Node {
	node := func(name, leaf string, cores int64, used int, usedCores int64) Node {
		n := Empty(&cluster.NodeSpec{Name: name, Model: "H800", GPUs: 8, CPUMilli: cores * 1000, Domains: []string{leaf}})
		n.Take(1<<used-1, cluster.WholeGPU, usedCores*1000, 0, 1)
		return n
	}
	nodes := []Node{
		node("n1", "leaf-1", 128, 0, 0),  // empty
		node("n2", "leaf-1", 128, 3, 24), // five idle
		node("n3", "leaf-2", 128, 0, 72), // its GPUs are idle, 56 cores are left
		node("n4", "leaf-2", 128, 0, 0),
		node("n5", "leaf-2", 128, 0, 0),
		node("n6", "leaf-1", 128, 0, 0),
	}
	nodes[1].Take(1<<3, 500, 4000, 0, 1) // and half a GPU
	nodes[5].Closed = Cordoned
	return nodes
}

func TestExample(t *testing.T) {
	sh, err := ParseShape("8G64C")
	if err != nil {
		t.Fatal(err)
	}
	r := Diagnose(example(), sh, Within{Pods: 2, Name: "leaf"})
	var got []string
	for c, m := range r.Split {
		if m > 0 {
			got = append(got, fmt.Sprintf("%s %s", Cause(c), m.GPUs()))
		}
	}
	for _, f := range r.Findings {
		got = append(got, fmt.Sprintf("%s %s: %s", f.Cause, f.GPU.GPUs(), f.Advice()))
	}
	want := []string{
		"allocatable 16", "fractional 0.5", "stranded 4", "cpu 8", "topology 8", "cordoned 8",
		"fractional 0.5: move 0.5 GPUs of pods off the shared GPUs of n2",
		"stranded 4: move 4 GPUs off n2",
		"cpu 8: 8 cores more on n3",
		"topology 8: level leaf: 8 GPUs more for such pods in leaf-1",
		"cordoned 8: uncordon n6",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestFits(t *testing.T) {
	nodes := example()
	nodes[4].Spec.Model = "A10"
	job, err := ParseJob("16x8c")
	if err != nil {
		t.Fatal(err)
	}
	want := []Fit{{"A10", 0, 0}, {"H800", 0, 1}, {"", 1, 1}}
	if got := Fits(nodes, job, 0); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Nothing that could be moved away helps on nodes that are too small.
func TestNeverHelps(t *testing.T) {
	n := Empty(&cluster.NodeSpec{Name: "n1", Model: "A10", GPUs: 4, CPUMilli: 32_000})
	for shape, want := range map[string]string{
		"8g8c":      "nothing: n1 has 4 GPUs healthy in all",
		"4g64c":     "nothing: n1 has 32 cores in all",
		"1g+hca=1":  "nothing: n1 has 0 hca in all",
		"1g1c1Gi":   "nothing: n1 has 0 GiB in all",
		"0.3g1c":    "nothing: a GPU is no multiple of 0.3g1c",
		"3g8c":      "nothing: n1 has 4 GPUs healthy in all",
		"1g8c":      "",
		"2g24c":     "nothing: n1 has 32 cores in all",
		"0.5g0.25c": "",
	} {
		sh, err := ParseShape(shape)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if fs := Diagnose([]Node{n}, sh, Within{}).Findings; len(fs) > 0 {
			got = fs[0].Advice()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", shape, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	for _, text := range []string{"8g64c", "1g", "0.25g4c", "8g64c512Gi", "8g64c0.5Gi", "2g1.5c+hca=1+rdma/nic=2"} {
		if sh, err := ParseShape(text); err != nil || sh.String() != text {
			t.Errorf("%s: %s, %v", text, sh, err)
		}
	}
	for _, text := range []string{"", "8", "g", "0g", "1.5g", "8c", "8g64", "8g64x", "65g", "8g+hca", "8g+hca=0", "8g+=1", "8g+a=1+a=1", "8g1.0000c", "-1g", "1g-1c", "1e3g", "9999999999999999g", "1..5g"} {
		if sh, err := ParseShape(text); err == nil {
			t.Errorf("%q: read as %s", text, sh)
		}
	}
	for _, text := range []string{"128x12c", "256x12c/1g", "4x0.5c/2g"} {
		if j, err := ParseJob(text); err != nil || j.String() != text {
			t.Errorf("%s: %s, %v", text, j, err)
		}
	}
	for _, text := range []string{"", "128", "x12c", "100x12c", "0x12c", "128x12", "128x12c/", "128x12c/0g", "128x12c/0.5g", "128x12cc", "-8x1c"} {
		if j, err := ParseJob(text); err == nil {
			t.Errorf("%q: read as %s", text, j)
		}
	}
	var names []string
	for _, sh := range PaperShapes() {
		names = append(names, sh.String())
	}
	if got, want := strings.Join(names, " "), "1g8c 1g16c 2g16c 2g32c 4g32c 4g64c 8g64c 8g128c"; got != want {
		t.Errorf("the paper's shapes are %s, want %s", got, want)
	}
}

func BenchmarkTally(b *testing.B) {
	tally := NewTally(PaperShapes(), PaperJobs(), 0)
	n := Empty(&cluster.NodeSpec{Name: "n1", Model: "A10", GPUs: 8, CPUMilli: 128_000, Domains: []string{"l"}})
	at := tally.Place(&n)
	tally.Count(&n, at, 1)
	for b.Loop() {
		tally.Count(&n, at, -1)
		tally.Count(&n, at, 1)
	}
}
