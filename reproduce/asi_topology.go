package reproduce

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/frag"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/place/joint"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

var asiTopology = Experiment{
	Name:  "asi-topology",
	Title: "Large jobs on the cluster asi, within one leaf group and across, and several that wait together",
	run:   runASITopology,
	Takes: []string{"seeds"},
}

// asiTopologyAt is when the cluster is looked at: by then it is as full as it stays.
const asiTopologyAt = 24 * 3600 * core.Second

// runASITopology runs a day with each seed, looks at what is free then, and has the large
// jobs that come next placed there together.
func runASITopology(ctx context.Context, o Options) (Result, error) {
	seeds := o.Seeds
	if len(seeds) == 0 {
		seeds = []int64{0, 1, 2}
	}
	all := make([]asiRoom, len(seeds))
	say := func(i int) { o.say("a day of asi, seed %d", seeds[i]) }
	if err := inParallel(ctx, len(seeds), say, func(i int) (err error) {
		all[i], err = asiRoomAfterADay(ctx, uint64(seeds[i]))
		return err
	}); err != nil {
		return nil, err
	}
	sum := asiRoom{fits: map[asiFit]frag.Fit{}}
	for i := range all {
		sum.add(&all[i])
	}
	return &Table{
		Caption: fmt.Sprintf("The built-in workload asi under the default policy after one day, %d seeds together; the reference: Heterogeneity at\n"+
			"Hyperscale (ASI), §4.1, Fig. 14. A job is in pods of 8 GPUs with 12 cores for each GPU.", len(seeds)),
		Notes: []string{
			"The paper plots Fig. 14 and has no figure in its text, so the rows hold its claims. How full the cluster is is an input of the workload\n" +
				"(93 %); how the free GPUs lie is an outcome.",
			"Jobs that wait together: of each GPU model the jobs of 64 to 2,048 GPUs that come next in the workload, as many as the free nodes hold. The\n" +
				"largest first is the paper's way (Algorithm 2 for each job); together is core/place/joint. The paper has no figure: it calls this an open problem.",
		},
		Rows: slices.Concat(sum.fitRows(), sum.jointRows()),
	}, nil
}

// asiFit is a job of Fig. 14 on a kind of models.
type asiFit struct {
	gpus int
	on   string
}

// asiRoom is what was free, and what could be made of it.
type asiRoom struct {
	fits map[asiFit]frag.Fit
	// jobs is how many waited; scores are of placing them, the largest first, together, and
	// together for the most GPUs, first across leaf groups and then each within one.
	jobs   int
	scores [2][3]joint.Score
	pods   int // of the jobs
}

func (r *asiRoom) add(o *asiRoom) {
	for k, f := range o.fits {
		r.count(k, f)
	}
	r.jobs += o.jobs
	r.pods += o.pods
	for i := range r.scores {
		for k := range r.scores[i] {
			r.scores[i][k] = r.scores[i][k].Plus(o.scores[i][k])
		}
	}
}

func (r *asiRoom) count(k asiFit, f frag.Fit) {
	was := r.fits[k]
	r.fits[k] = frag.Fit{Within: was.Within + f.Within, Across: was.Across + f.Across}
}

// asiRoomAfterADay runs a day and looks at the nodes.
func asiRoomAfterADay(ctx context.Context, seed uint64) (asiRoom, error) {
	r := asiRoom{fits: map[asiFit]frag.Fit{}}
	wo := workload.Options{Seed: seed}
	cluster, seen, err := asiAfterADay(ctx, wo)
	if err != nil {
		return r, err
	}
	wo.Cluster = &cluster
	leaf := len(cluster.Levels) - 1
	for _, j := range frag.PaperJobs() {
		for _, f := range frag.Fits(seen.nodes, j, leaf) {
			on := "NVIDIA"
			switch {
			case f.Model == "":
				on = "all mixed"
			case strings.HasPrefix(f.Model, "XPU-"):
				on = f.Model
			}
			r.count(asiFit{int(j.GPU() / core.WholeGPU), on}, f)
			if f.Model == "H20" {
				r.count(asiFit{int(j.GPU() / core.WholeGPU), f.Model}, f)
			}
		}
	}
	jobs, _, err := workload.OpenJobs("asi", wo)
	if err != nil {
		return r, err
	}
	return r, r.waitTogether(seen.room(frag.PaperJobs()[0].Shape, leaf), jobs)
}

// waitTogether places the large jobs that come next together. room is for pods of 8 GPUs, by
// model and leaf group.
func (r *asiRoom) waitTogether(room map[string][]int, jobs workload.Jobs) error {
	left, waiting := map[string]int{}, map[string][]int{}
	open := 0 // models of which the room is not taken yet
	for model, groups := range room {
		for _, n := range groups {
			left[model] += n
		}
		if left[model] >= 8 {
			open++
		}
	}
	for j, err := range jobs {
		if err != nil {
			return err
		}
		if open == 0 || j.Submitted > 30*asiTopologyAt {
			break
		}
		pods := int(j.GPUs() / (8 * core.WholeGPU))
		if m := j.Tasks[0].Models; j.Submitted > asiTopologyAt && pods >= 8 && len(m) == 1 && pods <= left[m[0]] && left[m[0]] >= 8 {
			waiting[m[0]] = append(waiting[m[0]], pods)
			r.pods += pods
			if left[m[0]] -= pods; left[m[0]] < 8 {
				open--
			}
		}
	}
	for _, model := range slices.Sorted(maps.Keys(waiting)) {
		r.jobs += len(waiting[model])
		for i, within := range []bool{false, true} {
			p := joint.Problem{Room: room[model], Jobs: waiting[model], Within: within}
			most := p
			most.For = joint.MostGPUs
			for k, plan := range []joint.Plan{p.LargestFirst(), p.Together(100_000), most.Together(100_000)} {
				r.scores[i][k] = r.scores[i][k].Plus(plan.Score())
			}
		}
	}
	return nil
}

// fitRows compares with Fig. 14.
func (r *asiRoom) fitRows() []Row {
	share := func(gpus int, on string) float64 {
		f := r.fits[asiFit{gpus, on}]
		return 100 * float64(f.Within) / float64(max(1, f.Across))
	}
	across := func(gpus int, on string) float64 { return float64(r.fits[asiFit{gpus, on}].Across) }
	rows := []Row{
		below("jobs of 128 GPUs within one leaf group, of those across, all models", 75, share(128, "all mixed"), "%").said("significantly reduces"),
		below("jobs of 256 GPUs within one leaf group, of those across, all models", 75, share(256, "all mixed"), "%").said("significantly reduces"),
		below("jobs of 256 GPUs within one leaf group, of those across, NVIDIA", 10, share(256, "NVIDIA"), "%").said("drops to near zero"),
		over("jobs of 128 GPUs within one leaf group, of those across, XPU-A", share(128, "NVIDIA"), share(128, "XPU-A"), "%").said("less pronounced"),
		over("jobs of 256 GPUs within one leaf group, of those across, XPU-A", share(256, "NVIDIA"), share(256, "XPU-A"), "%").said("less pronounced"),
		over("jobs of 256 GPUs across all models, to those on NVIDIA models", 1, across(256, "all mixed")/max(1, across(256, "NVIDIA")), "").said("retains higher capacity"),
	}
	all, h20 := r.fits[asiFit{256, "NVIDIA"}], r.fits[asiFit{256, "H20"}]
	rows[2].Note = fmt.Sprintf("on H20 nodes %d such jobs fit within one leaf group and %d across, on all other NVIDIA models %d and %d", h20.Within, h20.Across,
		all.Within-h20.Within, all.Across-h20.Across)
	return rows
}

// jointRows tells what jobs that wait together come to.
func (r *asiRoom) jointRows() []Row {
	none := func(figure string, ours float64, unit string) Row {
		return Row{Figure: figure, Bound: "none", Ours: ours, Unit: unit, Within: true}
	}
	rows := []Row{none("jobs of 64 to 2,048 GPUs that wait together", float64(r.jobs), "")}
	for i, how := range []string{"across leaf groups", "each within one leaf group"} {
		for k, way := range []string{"largest first", "together", "together, for the most GPUs"} {
			if i == 0 && k == 2 {
				continue // all have a place
			}
			s := &r.scores[i][k]
			rows = append(rows, none(way+", "+how+": jobs with a place", float64(s.Fulfilled), ""),
				none(way+", "+how+": GPUs of those", 8*float64(s.Pods), ""))
			if i == 0 {
				bits := float64(s.Spread) / (1 << place.FractionBits)
				rows = append(rows,
					none(way+": entropy, for each GPU that waits", bits/float64(max(1, r.pods)), "bits"),
					none(way+": GPUs outside the largest part of their job", 8*float64(s.Cross), ""))
			}
		}
	}
	return rows
}

// freeNodes is a [sim.Sink] that keeps what is free on each node.
type freeNodes struct {
	index map[string]int
	nodes []frag.Node
}

var _ sim.Sink = (*freeNodes)(nil)

// room returns how many pods of a shape each leaf group has room for, by GPU model, in the
// order of the groups' first nodes.
func (f *freeNodes) room(sh frag.Shape, leaf int) map[string][]int {
	room, at := map[string][]int{}, map[string]int{}
	for i := range f.nodes {
		n := &f.nodes[i]
		path, known := frag.Path(n.Spec, leaf)
		if !known || len(n.Free) == 0 {
			continue
		}
		key, model := n.Spec.Model+" "+path, n.Spec.Model
		if _, ok := at[key]; !ok {
			at[key] = len(room[model])
			room[model] = append(room[model], 0)
		}
		s := sh.Split(n)
		room[model][at[key]] += int(s[frag.Allocatable] / sh.GPU)
	}
	return room
}

// Node implements [sim.Sink].
func (f *freeNodes) Node(_ core.Time, n *core.Node, up bool) error {
	i, ok := f.index[n.Name]
	if !ok {
		i = len(f.nodes)
		f.index[n.Name] = i
		f.nodes = append(f.nodes, frag.Empty(n))
	}
	f.nodes[i].Describe(n)
	if !up {
		f.nodes[i].Closed = frag.Cordoned
	}
	return nil
}

// Bound implements [sim.Sink].
func (f *freeNodes) Bound(_ core.Time, _ *sim.Live, pods []core.Placement, _ core.Reason) error {
	f.take(pods, 1)
	return nil
}

// Released implements [sim.Sink].
func (f *freeNodes) Released(_ core.Time, _ *sim.Live, pods []core.Placement, _ sim.Release, _ sim.Eviction) error {
	f.take(pods, -1)
	return nil
}

func (f *freeNodes) take(pods []core.Placement, by int) {
	for i := range pods {
		p := &pods[i]
		f.nodes[f.index[p.Node]].Take(p.GPUs, p.GPU, p.CPUMilli, p.MemMiB, by)
	}
}

// Submitted implements [sim.Sink].
func (f *freeNodes) Submitted(core.Time, *sim.Live) error { return nil }

// Ended implements [sim.Sink].
func (f *freeNodes) Ended(core.Time, *sim.Live, *sim.Rejection) error { return nil }
