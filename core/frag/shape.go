package frag

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/core/cluster"
)

// Shape is what a pod requests.
type Shape struct {
	// GPU is above 0: below WholeGPU a part of one device, else a multiple of WholeGPU.
	GPU Milli
	// CPUMilli is in thousandths of a core, MemMiB in MiB; both 0..MaxAmount.
	CPUMilli, MemMiB int64
	// Others is sorted by name; all values are above 0.
	Others []cluster.Amount
}

// PaperShapes are the requests of ASI's Fig. 13, from 1 GPU with 8 cores to 8 GPUs with 128.
// The paper's text names the first, the last, 4G32C and 8G64C; the others continue the two
// series of 8 and 16 cores a GPU.
func PaperShapes() []Shape {
	var all []Shape
	for g := int64(1); g <= 8; g *= 2 {
		for _, cores := range []int64{8, 16} {
			all = append(all, Shape{GPU: Milli(g) * cluster.WholeGPU, CPUMilli: g * cores * 1000})
		}
	}
	return all
}

// ParseShape reads a shape: GPUs and, in this order and each if there is any, cores, memory
// and other resources, such as 8g64c, 0.5g4c, 8g64c512Gi or 8g64c+rdma/hca=8.
func ParseShape(text string) (Shape, error) {
	const want = "a shape such as 8g64c, 0.5g4c, 8g64c512Gi or 8g64c+rdma/hca=8"
	parts := strings.Split(text, "+")
	gpus, rest, ok := before(parts[0], "g")
	sh := Shape{GPU: Milli(gpus)}
	if !ok || gpus <= 0 || gpus > cluster.MaxGPUs*1000 {
		return sh, fmt.Errorf("%s, with above 0 and at most %d GPUs; found %q", want, cluster.MaxGPUs, text)
	}
	if sh.GPU > cluster.WholeGPU && sh.GPU%cluster.WholeGPU != 0 {
		return sh, fmt.Errorf("a part of one GPU or whole GPUs; found %q", text)
	}
	if cores, after, ok := before(rest, "c"); ok {
		sh.CPUMilli, rest = cores, after
	}
	if mem, after, ok := before(rest, "gi"); ok {
		sh.MemMiB, rest = mem*1024/1000, after
	}
	if rest != "" || sh.CPUMilli > cluster.MaxAmount || sh.MemMiB > cluster.MaxAmount {
		return sh, fmt.Errorf("%s; found %q", want, text)
	}
	for _, part := range parts[1:] {
		name, value, _ := strings.Cut(part, "=")
		v, err := strconv.ParseInt(value, 10, 64)
		if name == "" || err != nil || v <= 0 || v > cluster.MaxAmount {
			return sh, fmt.Errorf("%s; found %q", want, text)
		}
		sh.Others = append(sh.Others, cluster.Amount{Name: name, Value: v})
	}
	slices.SortFunc(sh.Others, func(a, b cluster.Amount) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(sh.Others); i++ {
		if sh.Others[i].Name == sh.Others[i-1].Name {
			return sh, fmt.Errorf("each resource once; found %q", text)
		}
	}
	return sh, nil
}

// before reads what stands before a unit, in thousandths, and returns what follows.
func before(text, unit string) (milli int64, rest string, ok bool) {
	digits := len(text) - len(strings.TrimLeft(text, "0123456789."))
	if digits == 0 || digits > 15 || len(text) < digits+len(unit) || !strings.EqualFold(text[digits:digits+len(unit)], unit) {
		return 0, text, false
	}
	whole, part, _ := strings.Cut(text[:digits], ".")
	if len(part) > 3 {
		return 0, text, false
	}
	w, err := strconv.ParseInt(whole, 10, 64)
	p, bad := strconv.ParseInt((part + "000")[:3], 10, 64)
	if err != nil || bad != nil || w > 1<<48 {
		return 0, text, false
	}
	return w*1000 + p, text[digits+len(unit):], true
}

// String writes the shape as [ParseShape] reads it.
func (sh Shape) String() string {
	text := sh.GPU.GPUs() + "g"
	if sh.CPUMilli > 0 {
		text += Milli(sh.CPUMilli).GPUs() + "c"
	}
	if sh.MemMiB > 0 {
		text += strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.3f", float64(sh.MemMiB)/1024), "0"), ".") + "Gi"
	}
	for _, a := range sh.Others {
		text += fmt.Sprintf("+%s=%d", a.Name, a.Value)
	}
	return text
}

// Job is a gang of pods that are alike.
type Job struct {
	Shape Shape // of a pod
	Pods  int   // at least 1
}

// PaperJobs are the jobs of ASI's Fig. 14: 128 and 256 GPUs with 12 cores for each. The paper
// does not say of what pods; here each has 8 GPUs, as the paper's nodes have.
func PaperJobs() []Job {
	pod := Shape{GPU: 8 * cluster.WholeGPU, CPUMilli: 96_000}
	return []Job{{pod, 16}, {pod, 32}}
}

// ParseJob reads GPUs x cores for each GPU, in pods of 8 GPUs or as many as follow a slash,
// such as 128x12c or 128x12c/1g.
func ParseJob(text string) (Job, error) {
	const want = "a gang such as 128x12c (GPUs x cores for each GPU, in pods of 8 GPUs) or 128x12c/1g"
	all, per, ok := strings.Cut(text, "x")
	cores, rest, hasCores := before(per, "c")
	pod, sized := int64(8000), rest == ""
	if !sized && rest[0] == '/' {
		pod, rest, sized = before(rest[1:], "g")
		sized = sized && rest == "" && pod > 0 && pod%1000 == 0 && pod <= cluster.MaxGPUs*1000
	}
	gpus, err := strconv.ParseInt(all, 10, 32)
	if !ok || err != nil || !hasCores || !sized || gpus < 1 || cores > cluster.MaxAmount/cluster.MaxGPUs {
		return Job{}, fmt.Errorf("%s; found %q", want, text)
	}
	if gpus*1000%pod != 0 {
		return Job{}, fmt.Errorf("a number of GPUs that is a multiple of the %d of a pod; found %q", pod/1000, text)
	}
	return Job{Shape{GPU: Milli(pod), CPUMilli: pod / 1000 * cores}, int(gpus * 1000 / pod)}, nil
}

// String writes the job as [ParseJob] reads it.
func (j Job) String() string {
	g := int64(j.Shape.GPU / cluster.WholeGPU)
	text := fmt.Sprintf("%dx%sc", g*int64(j.Pods), Milli(j.Shape.CPUMilli/g).GPUs())
	if g != 8 {
		text += fmt.Sprintf("/%dg", g)
	}
	return text
}

// GPU returns what all pods of the job take.
func (j Job) GPU() Milli { return Milli(j.Pods) * j.Shape.GPU }
