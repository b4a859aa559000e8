package translate

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
)

// Request says what a pod needs of a node, no more than the engine takes: what is
// beyond that is an error too. An error says, in the words of the pod's author, what
// in it cannot be used.
func Request(p *v1.Pod, a *Attributes) (core.Request, error) {
	asked := requestsOf(p)
	need := AmountsIn(asked)
	r := core.Request{GPU: milli(min(need.GPUs, cluster.MaxGPUs)), CPUMilli: need.CPUMilli, MemMiB: need.MemMiB, Others: need.Others}
	if need.GPUs > 0 {
		r.Picker = core.NodePicks
	}
	if err := r.Accept(a.Models); err != nil {
		return r, fmt.Errorf("%s of a pod: expected %w; found %q", v1alpha1.GPUModelsAnnotation, err, strings.Join(a.Models, "|"))
	}
	if need.GPUs > 0 && a.Fraction > 0 {
		return r, fmt.Errorf("a fraction of a GPU and %d whole GPUs are requested: expected one of them", need.GPUs)
	}
	if a.GPUCount > 0 && len(p.Spec.ResourceClaims) > 0 {
		return r, fmt.Errorf("%s and resource claims are requested: expected one of them", v1alpha1.GPUCountAnnotation)
	}
	if err := addPart(&r, a); err != nil {
		return r, err
	}
	if list := GPUResources(asked); len(list) > 1 {
		return r, fmt.Errorf("GPUs are requested as %s and as %s: expected one of them", list[0], list[1])
	}
	if need.GPUs > cluster.MaxGPUs {
		return r, fmt.Errorf("%d GPUs are requested, expected at most %d per pod", need.GPUs, cluster.MaxGPUs)
	}
	if what := tooMuch(asked); what != "" {
		return r, errors.New(what)
	}
	for _, t := range p.Spec.Tolerations {
		if o, ok := tolerated(&t); ok {
			r.Tolerations = append(r.Tolerations, o)
		}
	}
	err := selectors(p, &r)
	return r, err
}

// Inherit adds the values of its job about GPUs to a pod's request, where the pod has
// none: the models, and a part of a GPU or memory of one if the pod requests none. Errors
// are like those of [Request].
func Inherit(r *core.Request, a, job *Attributes) error {
	if a.Models == nil {
		a.Models = job.Models
		if err := r.Accept(a.Models); err != nil {
			return fmt.Errorf("%s of the job: expected %w; found %q", v1alpha1.GPUModelsAnnotation, err, strings.Join(a.Models, "|"))
		}
	}
	if r.GPU > 0 || a.GPUMemory > 0 {
		return nil
	}
	a.Fraction, a.GPUCount, a.GPUMemory = job.Fraction, job.GPUCount, job.GPUMemory
	return addPart(r, a)
}

// addPart adds the part of a GPU, or the GPUs, that are asked for beside the pod's resources.
func addPart(r *core.Request, a *Attributes) error {
	if a.GPUCount > 0 && r.GPU+a.Fraction > 0 {
		return fmt.Errorf("%s and other GPUs, or a fraction of one, are requested: expected one of them", v1alpha1.GPUCountAnnotation)
	}
	part := a.Fraction + milli(int64(a.GPUCount))
	if r.GPU == 0 && (part > 0 || a.GPUMemory > 0) {
		r.Picker = core.EnginePicks
	}
	r.GPU += part
	if a.GPUMemory > 0 && r.GPU > 0 {
		return fmt.Errorf("GPU memory and GPUs, or a fraction of one, are requested: expected one of them")
	}
	return nil
}

// tolerated says in the engine's words which taints a toleration bears; false if none that it knows.
func tolerated(t *v1.Toleration) (core.Toleration, bool) {
	out := core.Toleration{Key: t.Key, Effect: string(t.Effect)}
	if t.Key != "" && passing(t.Key) {
		return out, false
	}
	switch t.Operator {
	case "", v1.TolerationOpEqual:
		out.Value = taintValue(t.Value)
	case v1.TolerationOpExists:
	default:
		return out, false // an operator of later versions: bears nothing
	}
	return out, true
}

// selectors translates the node selector and the required node affinity.
func selectors(p *v1.Pod, r *core.Request) error {
	keys := make([]string, 0, len(p.Spec.NodeSelector))
	for k := range p.Spec.NodeSelector {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		r.Selector = append(r.Selector, core.Requirement{Key: k, Op: cluster.In, Values: []string{p.Spec.NodeSelector[k]}})
	}
	a := p.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return nodeTerms(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution, r)
}

// nodeTerms adds a node selector to a request: one of its terms must hold.
func nodeTerms(s *v1.NodeSelector, r *core.Request) error {
	var terms [][]core.Requirement
	for i := range s.NodeSelectorTerms {
		t := &s.NodeSelectorTerms[i]
		var reqs []core.Requirement
		for _, e := range slices.Concat(t.MatchExpressions, t.MatchFields) {
			req, err := Requirement(&e)
			if err != nil {
				return err
			}
			reqs = append(reqs, req)
		}
		if len(reqs) > 0 { // a term without conditions matches no node
			terms = append(terms, reqs)
		}
	}
	switch {
	case len(terms) == 0:
		r.Selector = append(r.Selector, core.Requirement{Key: NodeName, Op: cluster.In})
	case len(terms) == 1:
		r.Selector = append(r.Selector, terms[0]...)
	default:
		AddAlternatives(r, terms)
	}
	return nil
}

// product joins two lists of alternatives: one of each must hold. Where there are more than a
// pod may have no node fits: each list that a user adds multiplies their number.
func product(a, b [][]core.Requirement) [][]core.Requirement {
	if len(a)*len(b) > 500 {
		return [][]core.Requirement{{{Key: NodeName, Op: cluster.In}}}
	}
	var out [][]core.Requirement
	for _, x := range a {
		for _, y := range b {
			out = append(out, slices.Concat(x, y))
		}
	}
	return out
}

var operators = map[v1.NodeSelectorOperator]cluster.Op{
	v1.NodeSelectorOpIn: cluster.In, v1.NodeSelectorOpNotIn: cluster.NotIn, v1.NodeSelectorOpExists: cluster.Exists,
	v1.NodeSelectorOpDoesNotExist: cluster.DoesNotExist, v1.NodeSelectorOpGt: cluster.Gt, v1.NodeSelectorOpLt: cluster.Lt,
}

// Requirement translates a condition on the labels of nodes.
func Requirement(e *v1.NodeSelectorRequirement) (core.Requirement, error) {
	op, ok := operators[e.Operator]
	if !ok {
		return core.Requirement{}, fmt.Errorf("node affinity: unknown operator %q of %s", e.Operator, e.Key)
	}
	return core.Requirement{Key: e.Key, Op: op, Values: e.Values}, nil
}

// Devices writes a set of devices as the annotation says them: "0,3".
func Devices(set uint64) string {
	var b strings.Builder
	for d := range 64 {
		if set>>d&1 == 1 {
			if b.Len() > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strconv.Itoa(d))
		}
	}
	return b.String()
}

// ParseDevices reads what [Devices] wrote. An error quotes what is wrong.
func ParseDevices(s string) ([]int, error) {
	if s == "" {
		return nil, nil
	}
	var out []int
	for part := range strings.SplitSeq(s, ",") {
		d, err := strconv.Atoi(part)
		if err != nil || d < 0 || d > 63 || slices.Contains(out, d) {
			return nil, fmt.Errorf("%s: %q: expected device numbers such as 0,3", v1alpha1.GPUsAnnotation, s)
		}
		out = append(out, d)
	}
	return out, nil
}

// Share is how much of each of its GPUs a bound pod has, as it was bound.
func Share(p *v1.Pod) core.Milli {
	if n := Number(p.Annotations[v1alpha1.ShareAnnotation]); n > 0 && n < 1000 {
		return core.Milli(n)
	}
	return core.WholeGPU
}

// Held is how much of GPUs a pod on a node has at least, beyond what its spec says:
// what its annotations say that cannot be read counts as whole GPUs. 0 for pods that
// get GPUs by their spec or by claims, and for those that say nothing of GPUs.
func Held(p *v1.Pod) core.Milli {
	if Requests(p).GPUs > 0 || len(p.Spec.ResourceClaims) > 0 {
		return 0
	}
	held := core.Milli(0)
	if _, v, ok := lookup(p, fractionKeys); ok {
		part, err := fraction(v)
		if err != nil {
			part = core.WholeGPU
		}
		held = part
	}
	if _, v, ok := lookup(p, countKeys); ok {
		n, err := gpuCount(v)
		if err != nil {
			n = 1
		}
		held = max(held, milli(int64(n)))
	}
	if _, ok := p.Annotations[v1alpha1.GPUsAnnotation]; ok {
		part, devices := core.WholeGPU, 1
		if v, ok := p.Annotations[v1alpha1.ShareAnnotation]; ok && Share(p) < core.WholeGPU && v != "" {
			part = Share(p)
		}
		if list, err := ParseDevices(p.Annotations[v1alpha1.GPUsAnnotation]); err == nil {
			devices = len(list)
		}
		if devices > 1 {
			part = core.WholeGPU // parts are of one
		}
		held = max(held, core.Milli(devices)*part)
	}
	return held
}

// fraction reads a part of a GPU: "0.25" is 250.
func fraction(s string) (core.Milli, error) {
	f, err := strconv.ParseFloat(s, 64)
	m := math.Round(f * 1000)
	if err != nil || !(m >= 1 && m <= 999 && math.Abs(m-f*1000) <= 1e-6) { // nor NaN
		return 0, fmt.Errorf("%q: expected a fraction of a GPU such as 0.25, with at most three decimals", s)
	}
	return core.Milli(m), nil
}

// gpuCount reads a number of whole GPUs.
func gpuCount(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > cluster.MaxGPUs {
		return 0, fmt.Errorf("%q: expected a number of GPUs from 1 to %d", s, cluster.MaxGPUs)
	}
	return n, nil
}
