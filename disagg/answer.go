package disagg

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/muster-sched/muster/api/strict"
	"github.com/muster-sched/muster/disagg/plan"
	"github.com/muster-sched/muster/internal/table"
	"github.com/muster-sched/muster/workload"
)

// Answer is a plan as JSON. Times are milliseconds of one request.
type Answer struct {
	Objective plan.Objective `json:"objective"`
	Shape     plan.Shape     `json:"shape"`
	Millis    float64        `json:"ms"`
	Bound     float64        `json:"bound_ms"`
	Gap       float64        `json:"gap"` // ms / bound_ms - 1
	GPUs      []AnswerGPU    `json:"gpus"`
	Shapes    []AnswerShape  `json:"shapes"`
	Cuts      AnswerCuts     `json:"cuts"`
	// Kernels has the GPU of each kernel in order; empty if replicas win.
	Kernels []AnswerKernel `json:"kernels,omitempty"`
}

// AnswerGPU is what a GPU does for one request, and the bytes that it holds.
type AnswerGPU struct {
	Name     string  `json:"name"`
	Kernels  int     `json:"kernels"`
	Compute  float64 `json:"compute_ms"`
	Transfer float64 `json:"transfer_ms"`
	Held     int64   `json:"held_bytes"`
	Memory   int64   `json:"memory_bytes,omitempty"`
}

// AnswerShape is the best plan of a shape; More is ms over that of the plan chosen, less 1.
type AnswerShape struct {
	Shape  plan.Shape `json:"shape"`
	Millis float64    `json:"ms"`
	More   float64    `json:"more"`
	Where  string     `json:"where"`
}

// AnswerCuts are the edges between GPUs: how many, and their bytes for one request.
type AnswerCuts struct {
	Edges int     `json:"edges"`
	Bytes float64 `json:"bytes"`
}

// AnswerKernel is where a kernel runs.
type AnswerKernel struct {
	Name string `json:"name"`
	GPU  string `json:"gpu"`
}

// NewAnswer describes a plan of a problem.
func NewAnswer(p *plan.Problem, objective plan.Objective, b *plan.Plan) *Answer {
	a := &Answer{Objective: objective, Shape: b.Shape, Millis: 1e3 * b.Seconds, Bound: 1e3 * b.Bound, Gap: b.Gap()}
	for g, gpu := range p.GPUs {
		a.GPUs = append(a.GPUs, AnswerGPU{Name: gpu.Name, Compute: 1e3 * b.Compute[g], Transfer: 1e3 * b.Transfer[g], Held: b.Held[g], Memory: gpu.Memory})
	}
	for _, g := range b.Serving {
		a.GPUs[g].Kernels = len(p.Kernels)
	}
	for k, g := range b.At {
		a.GPUs[g].Kernels++
		a.Kernels = append(a.Kernels, AnswerKernel{p.Kernels[k].Name, p.GPUs[g].Name})
	}
	for _, e := range p.Edges {
		if b.At != nil && b.At[e.From] != b.At[e.To] {
			a.Cuts.Edges++
			a.Cuts.Bytes += e.Bytes * e.Runs
		}
	}
	for _, c := range b.Others {
		s := AnswerShape{Shape: c.Shape, Millis: 1e3 * c.Seconds, Where: where(p, &c)}
		if b.Seconds > 0 {
			s.More = c.Seconds/b.Seconds - 1
		}
		a.Shapes = append(a.Shapes, s)
	}
	return a
}

// where says in a few words what a candidate puts where.
func where(p *plan.Problem, c *plan.Candidate) string {
	count := make([]int, len(p.GPUs))
	for _, g := range c.Serving {
		count[g] = len(p.Kernels)
	}
	label := map[int]string{} // of a GPU, the phases or kinds that a coarse shape puts there
	for k, g := range c.At {
		count[g]++
		if name := p.Kernels[k].Phase; c.Shape == plan.Phases && !strings.Contains(label[g], name) {
			label[g] += " " + name
		}
		if c.Shape == plan.Blocks && p.Kernels[k].Kind == plan.Attention {
			label[g] = " attention"
		}
	}
	var parts []string
	for g, n := range count {
		switch {
		case n == 0:
		case label[g] != "":
			parts = append(parts, p.GPUs[g].Name+":"+label[g])
		default:
			parts = append(parts, fmt.Sprintf("%s: %d", p.GPUs[g].Name, n))
		}
	}
	return strings.Join(parts, ", ")
}

// Text writes the answer for people.
func (a *Answer) Text(w io.Writer) error {
	what := "stage time"
	if a.Objective == plan.Latency {
		what = "latency"
	}
	fmt.Fprintf(w, "Best for %s: %s, %s %.3f ms a request; no plan takes less than %.3f ms (gap %.2f %%).\n\n", a.Objective, a.Shape, what, a.Millis, a.Bound, 100*a.Gap)
	shapes := table.Table{Align: "lrrl"}
	shapes.Add("SHAPE", "MS", "MORE", "KERNELS ON")
	for _, s := range a.Shapes {
		shapes.Add(string(s.Shape), fmt.Sprintf("%.3f", s.Millis), fmt.Sprintf("%.1f %%", 100*s.More), s.Where)
	}
	if err := shapes.Write(w, 80); err != nil {
		return err
	}
	fmt.Fprintln(w)
	var gpus table.Table
	gpus.Add("GPU", "KERNELS", "COMPUTE MS", "TRANSFER MS", "HELD GB", "MEMORY GB")
	for _, g := range a.GPUs {
		memory := "-"
		if g.Memory > 0 {
			memory = fmt.Sprintf("%.1f", float64(g.Memory)/1e9)
		}
		gpus.Add(g.Name, fmt.Sprint(g.Kernels), fmt.Sprintf("%.3f", g.Compute), fmt.Sprintf("%.3f", g.Transfer), fmt.Sprintf("%.2f", float64(g.Held)/1e9), memory)
	}
	if err := gpus.Write(w, 80); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nEdges between GPUs: %d, %.3f MB a request.\n", a.Cuts.Edges, a.Cuts.Bytes/1e6)
	return err
}

// ReadAnswer reads a plan that muster disagg plan --json printed. What is wrong with the file is a *workload.Error.
func ReadAnswer(file string) (*Answer, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, &workload.Error{File: file, Want: fmt.Sprintf("a file that can be read; found: %v", err)}
	}
	a := &Answer{}
	src, err := strict.Decode(file, data, a)
	if err == nil && len(a.GPUs) == 0 {
		err = src.Errorf("gpus", "at least one GPU; found 0")
	}
	return a, err
}
