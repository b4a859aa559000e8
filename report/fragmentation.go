package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/frag"
	"github.com/muster-sched/muster/internal/table"
)

// FragmentationQuery says what to ask about idle GPUs.
type FragmentationQuery struct {
	Shapes []frag.Shape
	Jobs   []frag.Job
	// Within is the level within one domain of which a job is to be: "" is the narrowest,
	// Anywhere that of the whole cluster.
	Within string
	// Mixed lets the pods of a job be on several GPU models. Model, if not empty, is the
	// only one to look at.
	Mixed bool
	Model string
	// Places lists each node and domain with idle GPUs that are not allocatable.
	Places bool
}

// Anywhere is the level of which the whole cluster is one domain.
const Anywhere = "cluster"

// Fragmentation says what becomes of the idle GPUs of a cluster, and why (see core/frag).
// Amounts are in thousandths of a GPU.
type Fragmentation struct {
	// AtSeconds is the time of the run; absent where there is none.
	AtSeconds *float64             `json:"at_s,omitempty"`
	GPUs      int                  `json:"gpus"`
	Idle      cluster.Milli        `json:"idle_milli"`
	Within    string               `json:"within"`
	Mixed     bool                 `json:"mixed"`
	Shapes    []ShapeFragmentation `json:"shapes"`
	Jobs      []JobFits            `json:"jobs"`
}

// ShapeFragmentation is idle GPU by what becomes of it, for pods of a shape, or for gangs of them.
type ShapeFragmentation struct {
	Shape string `json:"shape"`
	// Pods is the size of the gang; absent for single pods.
	Pods        int           `json:"gang_pods,omitempty"`
	Allocatable cluster.Milli `json:"allocatable_milli"`
	Fractional  cluster.Milli `json:"fractional_milli"`
	Stranded    cluster.Milli `json:"stranded_milli"`
	CPU         cluster.Milli `json:"cpu_milli"`
	Memory      cluster.Milli `json:"memory_milli"`
	PodLimit    cluster.Milli `json:"pods_milli"`
	Topology    cluster.Milli `json:"topology_milli"`
	Gang        cluster.Milli `json:"gang_milli"`
	Cordoned    cluster.Milli `json:"cordoned_milli"`
	Tainted     cluster.Milli `json:"tainted_milli"`
	Unhealthy   cluster.Milli `json:"unhealthy_milli"`
	// Others has the other resources of the shape, by name.
	Others map[string]cluster.Milli `json:"others_milli,omitempty"`
	// Places is left out unless it is asked for.
	Places []Place `json:"places,omitempty"`

	name  string
	split frag.Split
}

// Place is idle GPU with one cause on a node or in a domain.
type Place struct {
	Cause  string `json:"cause"`
	Node   string `json:"node,omitempty"`
	Domain string `json:"domain,omitempty"`
	Model  string `json:"model,omitempty"`
	// GPU is what the cause accounts for there.
	GPU cluster.Milli `json:"gpu_milli"`
	// Missing is how much more must be free, Unit of what; absent where nothing is counted.
	Missing int64  `json:"missing,omitempty"`
	Unit    string `json:"unit,omitempty"`
	// Possible says that it could be freed: the node has that much in all.
	Possible bool `json:"possible"`
	// Free says in words what would free it.
	Free string `json:"free"`
}

// JobFits is how many of a job fit, one after another and nothing else.
type JobFits struct {
	Job  string `json:"job"`
	Pods int    `json:"pods"`
	Pod  string `json:"pod"`
	// Models has the GPU models, and at the end all of them mixed.
	Models []ModelFit `json:"models"`
}

// ModelFit is how many of a job fit within one domain of the level, and across domains.
type ModelFit struct {
	Model  string `json:"model"`
	Mixed  bool   `json:"mixed"`
	Within int    `json:"within"`
	Across int    `json:"across"`
}

// QueryError says what is wrong with a query.
type QueryError struct{ Flag, Want string }

func (e *QueryError) Error() string { return "--" + e.Flag + ": expected " + e.Want }

// NewFragmentation answers a query about nodes. levels are those of the topology, widest
// first. The error is a [*QueryError].
func NewFragmentation(nodes []frag.Node, levels []string, q FragmentationQuery) (*Fragmentation, error) {
	level, err := q.level(levels)
	if err != nil {
		return nil, err
	}
	if nodes, err = q.on(nodes); err != nil {
		return nil, err
	}
	f := &Fragmentation{Within: Anywhere, Mixed: q.Mixed, Shapes: []ShapeFragmentation{}, Jobs: []JobFits{}}
	if level != frag.Across {
		f.Within = levels[level]
	}
	for i := range nodes {
		f.GPUs += len(nodes[i].Free)
		for _, free := range nodes[i].Free {
			f.Idle += free
		}
	}
	for _, sh := range q.Shapes {
		f.Shapes = append(f.Shapes, newShapeFragmentation(sh.String(), frag.Diagnose(nodes, sh, frag.Within{}), q.Places))
	}
	for _, j := range q.Jobs {
		in := frag.Within{Pods: j.Pods, Level: level, Name: f.Within, Mixed: q.Mixed}
		f.Shapes = append(f.Shapes, newShapeFragmentation(j.String(), frag.Diagnose(nodes, j.Shape, in), q.Places))
		fits := JobFits{Job: j.String(), Pods: j.Pods, Pod: j.Shape.String()}
		for _, m := range frag.Fits(nodes, j, level) {
			if level == frag.Across {
				m.Within = m.Across
			}
			if m.Model == "" || q.Model == "" {
				fits.Models = append(fits.Models, ModelFit{m.Model, m.Model == "", m.Within, m.Across})
			}
		}
		if q.Model != "" {
			fits.Models[0].Model, fits.Models[0].Mixed = q.Model, false
		}
		f.Jobs = append(f.Jobs, fits)
	}
	return f, nil
}

// level returns the number of the level that is asked about.
func (q *FragmentationQuery) level(levels []string) (int, error) {
	switch i := slices.Index(levels, q.Within); {
	case q.Within == "":
		return len(levels) - 1, nil // frag.Across without levels
	case i >= 0:
		return i, nil
	case q.Within != Anywhere:
		return 0, &QueryError{"within", fmt.Sprintf("one of the levels %s; found %q", list(append(slices.Clone(levels), Anywhere)), q.Within)}
	}
	return frag.Across, nil
}

// on returns the nodes with GPUs of the model that is asked about.
func (q *FragmentationQuery) on(nodes []frag.Node) ([]frag.Node, error) {
	var with []frag.Node
	models := map[string]bool{}
	for i := range nodes {
		if n := &nodes[i]; len(n.Free) > 0 {
			models[n.Spec.Model] = true
			if q.Model == "" || q.Model == n.Spec.Model {
				with = append(with, *n)
			}
		}
	}
	if q.Model != "" && len(with) == 0 {
		var names []string
		for name := range models {
			names = append(names, name)
		}
		slices.Sort(names)
		return nil, &QueryError{"model", fmt.Sprintf("one of the GPU models %s; found %q", list(names), q.Model)}
	}
	return with, nil
}

// list writes names for an error: at most ten of them.
func list(names []string) string {
	const most = 10
	if len(names) > most {
		names = append(slices.Clone(names[:most]), "…")
	}
	return strings.Join(names, ", ")
}

func newShapeFragmentation(name string, r frag.Report, places bool) ShapeFragmentation {
	s := r.Split
	out := ShapeFragmentation{
		Shape: r.Shape.String(), Pods: r.Within.Pods,
		Allocatable: s[frag.Allocatable], Fractional: s[frag.Fractional], Stranded: s[frag.Stranded], CPU: s[frag.CPU], Memory: s[frag.Memory], PodLimit: s[frag.Pods],
		Topology: s[frag.Topology], Gang: s[frag.Gang], Cordoned: s[frag.Cordoned], Tainted: s[frag.Tainted], Unhealthy: s[frag.Unhealthy],
		name: name, split: s,
	}
	for k, a := range r.Shape.Others {
		if out.Others == nil {
			out.Others = map[string]cluster.Milli{}
		}
		out.Others[a.Name] = r.Others[k]
	}
	if !places {
		return out
	}
	for _, f := range r.Findings {
		p := Place{Cause: f.Cause.String(), Node: f.Node, Domain: f.Domain, Model: f.Model, GPU: f.GPU, Possible: !f.Never, Free: f.Advice()}
		if f.Missing > 0 {
			p.Missing, p.Unit = f.Missing, f.Unit()
		}
		out.Places = append(out.Places, p)
	}
	return out
}

// WriteText writes the answer for a terminal.
func (f *Fragmentation) WriteText(w io.Writer) error {
	at := ""
	if f.AtSeconds != nil {
		at = " at " + duration(*f.AtSeconds)
	}
	share := 0.0
	if f.GPUs > 0 {
		share = float64(f.Idle) / float64(cluster.WholeGPU) / float64(f.GPUs)
	}
	if _, err := fmt.Fprintf(w, "Idle GPUs%s: %s of %d (%s). What becomes of them, in GPUs:\n\n", at, f.Idle.GPUs(), f.GPUs, percent(share)); err != nil {
		return err
	}
	if err := f.causes().Write(w, screen); err != nil {
		return err
	}
	if len(f.Jobs) > 0 {
		where := "anywhere in the cluster"
		if f.Within != Anywhere {
			where = "within one " + f.Within + " and across"
		}
		fmt.Fprintf(w, "\nJobs that fit one after another, %s:\n\n", where)
		t, none := f.fits()
		if t != nil {
			if err := t.Write(w, screen); err != nil {
				return err
			}
		}
		if len(none) > 0 {
			fmt.Fprintf(w, "None on %s.\n", strings.Join(none, ", "))
		}
	}
	for i := range f.Shapes {
		if err := f.Shapes[i].writePlaces(w); err != nil {
			return err
		}
	}
	return nil
}

// causes is a row a shape, with a column for each cause that is usual or has GPUs.
func (f *Fragmentation) causes() *table.Table {
	t := new(table.Table)
	always := []frag.Cause{frag.Allocatable, frag.Fractional, frag.Stranded, frag.CPU}
	var columns []frag.Cause
	var others []string
	for c := range frag.NumCauses {
		if slices.Contains(always, c) || slices.ContainsFunc(f.Shapes, func(s ShapeFragmentation) bool { return s.split[c] > 0 }) {
			columns = append(columns, c)
		}
	}
	for _, s := range f.Shapes {
		for name, gpu := range s.Others {
			if gpu > 0 && !slices.Contains(others, name) {
				others = append(others, name)
			}
		}
	}
	slices.Sort(others)
	head := []string{"shape"}
	for _, c := range columns {
		if c == frag.Other {
			head = append(head, others...)
		} else {
			head = append(head, c.String())
		}
	}
	t.Add(head...)
	for _, s := range f.Shapes {
		row := []string{s.name}
		for _, c := range columns {
			if c != frag.Other {
				row = append(row, s.split[c].GPUs())
				continue
			}
			for _, name := range others {
				row = append(row, s.Others[name].GPUs())
			}
		}
		t.Add(row...)
	}
	return t
}

// fits is a row a GPU model, with columns for each job, nil without rows; none lists the models
// on which no job fits. The mixed row is left out where there is one model: it says the same.
func (f *Fragmentation) fits() (t *table.Table, none []string) {
	t = new(table.Table)
	head := []string{"GPU model"}
	for _, j := range f.Jobs {
		if head = append(head, j.Job); f.Within != Anywhere {
			head = append(head, "across")
		}
	}
	t.Add(head...)
	rows := 0
	models := f.Jobs[0].Models
	for k, m := range models {
		if m.Mixed && len(models) == 2 {
			continue
		}
		row, most := []string{m.Model}, 0
		if m.Mixed {
			row[0] = "(mixed)"
		}
		for _, j := range f.Jobs {
			most = max(most, j.Models[k].Within, j.Models[k].Across)
			if row = append(row, strconv.Itoa(j.Models[k].Within)); f.Within != Anywhere {
				row = append(row, strconv.Itoa(j.Models[k].Across))
			}
		}
		switch {
		case most > 0:
			t.Add(row...)
			rows++
		case !m.Mixed:
			none = append(none, m.Model)
		}
	}
	if rows == 0 {
		t = nil
	}
	return t, none
}

func (s *ShapeFragmentation) writePlaces(w io.Writer) error {
	if len(s.Places) == 0 {
		return nil
	}
	t := &table.Table{Align: "llrl"}
	t.Add("cause", "where", "GPUs", "what would free them")
	for _, p := range s.Places {
		where := p.Node
		if where == "" {
			where = p.Domain
		}
		if where == "" {
			where = "-"
		}
		t.Add(p.Cause, where, p.GPU.GPUs(), p.Free)
	}
	if _, err := fmt.Fprintf(w, "\n%s\n\n", s.name); err != nil {
		return err
	}
	return t.Write(w, screen)
}
