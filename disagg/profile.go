// Package disagg reads profiles of kernels on several models of GPUs, and shows the plans that
// package plan makes of them: as text, JSON and a picture.
package disagg

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/muster-sched/muster/api/strict"
	"github.com/muster-sched/muster/disagg/plan"
	"github.com/muster-sched/muster/workload"
)

// Profile is the content of a profile.json: what one request runs, and how long it takes on
// each model of GPU. docs/disagg.md describes the fields.
type Profile struct {
	Model   string   `json:"model,omitempty"`
	Source  string   `json:"source,omitempty"` // where the times are from
	GPUs    []GPU    `json:"gpus"`
	Phases  []Phase  `json:"phases,omitempty"`
	Buffers []Buffer `json:"buffers,omitempty"`
	Kernels []Kernel `json:"kernels"`
	Edges   []Edge   `json:"edges,omitempty"`
}

// GPU is a model of GPU. Memory is bytes, 0 without a limit.
type GPU struct {
	Name   string `json:"name"`
	Memory int64  `json:"memory,omitempty" min:"0"`
}

// Phase says how often the kernels of a phase run for one request. Of a recorded request they run
// once for each Tokens of its Per tokens, context or generated, or Runs times without Per.
type Phase struct {
	Name   string  `json:"name"`
	Runs   float64 `json:"runs" min:"0"`
	Per    string  `json:"per,omitempty"`
	Tokens float64 `json:"tokens,omitempty" min:"0"`
}

// The tokens that a phase may be per.
const (
	perContext   = "context"
	perGenerated = "generated"
)

// Buffer is weights, or state that stays in memory.
type Buffer struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes" min:"0"`
}

// Kernel has its time in microseconds on each GPU, in the order of Profile.GPUs.
type Kernel struct {
	Name    string    `json:"name"`
	Phase   string    `json:"phase,omitempty"`
	Kind    string    `json:"kind,omitempty"`
	Alike   string    `json:"alike,omitempty"`
	Micros  []float64 `json:"us" min:"0"`
	Buffers []string  `json:"buffers,omitempty"`
}

// Edge is bytes that one kernel writes and another reads, in the next iteration if Next is set.
type Edge struct {
	From  string  `json:"from"`
	To    string  `json:"to"`
	Bytes float64 `json:"bytes" min:"0"`
	Next  bool    `json:"next,omitempty"`
}

// ReadProfile reads a profile. What is wrong with the file is a *workload.Error.
func ReadProfile(file string) (*Profile, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, &workload.Error{File: file, Want: fmt.Sprintf("a file that can be read; found: %v", err)}
	}
	p := &Profile{}
	src, err := strict.Decode(file, data, p)
	if err != nil {
		return nil, err
	}
	_, err = p.index(src.Errorf)
	return p, err
}

// names has the index of each name in its list.
type names struct{ gpus, phases, buffers, kernels map[string]int }

// index checks what the fields say about each other; wrong makes an error at a path.
func (p *Profile) index(wrong func(path, format string, args ...any) error) (*names, error) {
	n := &names{map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}}
	var err error
	add := func(to map[string]int, list string, i int, name string) {
		if _, twice := to[name]; err == nil && (twice || name == "") {
			err = wrong(fmt.Sprintf("%s[%d].name", list, i), "a name that no other has; found %q", name)
		}
		to[name] = i
	}
	for i, x := range p.GPUs {
		add(n.gpus, "gpus", i, x.Name)
	}
	for i, x := range p.Phases {
		add(n.phases, "phases", i, x.Name)
	}
	for i, x := range p.Buffers {
		add(n.buffers, "buffers", i, x.Name)
	}
	for i := range p.Kernels {
		add(n.kernels, "kernels", i, p.Kernels[i].Name)
	}
	switch {
	case err != nil:
		return nil, err
	case len(p.GPUs) == 0:
		return nil, wrong("gpus", "at least one GPU; found 0")
	case len(p.Kernels) == 0:
		return nil, wrong("kernels", "at least one kernel; found 0")
	}
	for i, x := range p.Phases {
		switch {
		case x.Per != "" && x.Per != perContext && x.Per != perGenerated:
			return nil, wrong(fmt.Sprintf("phases[%d].per", i), "%s or %s; found %q", perContext, perGenerated, x.Per)
		case (x.Per != "") != (x.Tokens > 0):
			return nil, wrong(fmt.Sprintf("phases[%d].tokens", i), "a number above 0 with per, and none without; found %g", x.Tokens)
		}
	}
	for i := range p.Kernels {
		if err := p.checkKernel(i, n, wrong); err != nil {
			return nil, err
		}
	}
	for i, e := range p.Edges {
		for field, name := range [2]string{e.From, e.To} {
			if _, ok := n.kernels[name]; !ok {
				return nil, wrong(fmt.Sprintf("edges[%d].%s", i, [2]string{"from", "to"}[field]), "the name of a kernel; found %q", name)
			}
		}
	}
	return n, nil
}

func (p *Profile) checkKernel(i int, n *names, wrong func(path, format string, args ...any) error) error {
	k := &p.Kernels[i]
	if len(k.Micros) != len(p.GPUs) {
		return wrong(fmt.Sprintf("kernels[%d].us", i), "a time for each of the %d GPUs; found %d", len(p.GPUs), len(k.Micros))
	}
	if _, ok := n.phases[k.Phase]; !ok && len(p.Phases) > 0 {
		return wrong(fmt.Sprintf("kernels[%d].phase", i), "the name of a phase; found %q", k.Phase)
	}
	for _, b := range k.Buffers {
		if _, ok := n.buffers[b]; !ok {
			return wrong(fmt.Sprintf("kernels[%d].buffers", i), "names of buffers; found %q", b)
		}
	}
	return nil
}

// Problem makes the planner's problem: the profile on these GPUs, which may repeat a model, with
// links between any two and, if not 0, memory by model. An error starts with gpus, link or
// memory, and says what was expected there.
func (p *Profile) Problem(gpus []string, links Links, memory map[string]int64) (*plan.Problem, error) {
	n, err := p.index(func(path, format string, args ...any) error { return fmt.Errorf(path+": "+format, args...) })
	if err != nil {
		return nil, err
	}
	q := &plan.Problem{Shared: links.Shared}
	var column []int
	seen := map[string]int{}
	for _, name := range gpus {
		i, ok := n.gpus[name]
		if !ok {
			return nil, fmt.Errorf("gpus: %w", p.Known([]string{name}))
		}
		g := plan.GPU{Name: name, Memory: p.GPUs[i].Memory}
		if m, ok := memory[name]; ok {
			g.Memory = m
		}
		if seen[name]++; seen[name] > 1 {
			g.Name = fmt.Sprintf("%s#%d", name, seen[name])
		}
		q.GPUs, column = append(q.GPUs, g), append(column, i)
	}
	for name := range memory {
		if seen[name] == 0 {
			return nil, fmt.Errorf("memory: expected GPUs of the plan; found %q", name)
		}
	}
	if q.Links, err = links.between(gpus); err != nil {
		return nil, err
	}
	for _, b := range p.Buffers {
		q.Buffers = append(q.Buffers, b.Bytes)
	}
	for i := range p.Kernels {
		k := &p.Kernels[i]
		kernel := plan.Kernel{Name: k.Name, Phase: k.Phase, Kind: k.Kind, Alike: k.Alike, Runs: p.runs(n, k)}
		for _, c := range column {
			kernel.Seconds = append(kernel.Seconds, k.Micros[c]/1e6)
		}
		for _, b := range k.Buffers {
			kernel.Buffers = append(kernel.Buffers, n.buffers[b])
		}
		q.Kernels = append(q.Kernels, kernel)
	}
	for _, e := range p.Edges {
		from, to := n.kernels[e.From], n.kernels[e.To]
		runs := min(q.Kernels[from].Runs, q.Kernels[to].Runs) // a transfer between phases is once for the rarer one
		q.Edges = append(q.Edges, plan.Edge{From: from, To: to, Bytes: e.Bytes, Next: e.Next, Runs: runs})
	}
	return q, q.Check()
}

// runs is how often a kernel runs for one request; without phases once.
func (p *Profile) runs(n *names, k *Kernel) float64 {
	if i, ok := n.phases[k.Phase]; ok {
		return p.Phases[i].Runs
	}
	return 1
}

// Spell returns texts with the names of GPUs, which may be in any case, as the profile spells them: A100, A100=80gb or A100:L40S=100gbps.
func (p *Profile) Spell(texts []string) (spelled []string) {
	for _, text := range texts {
		names, rest, found := strings.Cut(text, "=")
		all := strings.Split(names, ":")
		for i, name := range all {
			if exact := slices.ContainsFunc(p.GPUs, func(g GPU) bool { return g.Name == name }); exact {
				continue
			}
			if at := slices.IndexFunc(p.GPUs, func(g GPU) bool { return strings.EqualFold(g.Name, name) }); at >= 0 {
				all[i] = p.GPUs[at].Name
			}
		}
		text = strings.Join(all, ":")
		if found {
			text += "=" + rest
		}
		spelled = append(spelled, text)
	}
	return spelled
}

// Known reports the first of some names that is no GPU of the profile.
func (p *Profile) Known(gpus []string) error {
	for _, name := range gpus {
		if !slices.ContainsFunc(p.GPUs, func(g GPU) bool { return g.Name == name }) {
			return fmt.Errorf("expected GPUs of the profile (%s); found %q", list(p.GPUs), name)
		}
	}
	return nil
}

func list(gpus []GPU) (text string) {
	for i, g := range gpus {
		if i > 0 {
			text += ", "
		}
		text += g.Name
	}
	return text
}
