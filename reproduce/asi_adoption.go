package reproduce

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/bits"
	"slices"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

var asiAdoption = Experiment{
	Name:  "asi-adoption",
	Title: "Jobs that accept XPU-A beside H20: where they run, and how long they and the others wait",
	run:   runASIAdoption,
	Takes: []string{"seeds"},
}

const (
	adoptionGPUs = 15_541 // a tenth of asi
	// Allocation is measured, and jobs count that come, from adoptionFrom until adoptionUntil.
	adoptionFrom  = 12 * 3600 * core.Second
	adoptionUntil = 60 * 3600 * core.Second
	// adoptionShare is which share of the generative jobs for H20 accepts XPU-A too, in per cent.
	adoptionShare = 50
)

// adoptionCase is a run: the speed of XPU-A for the jobs that accept it, in thousandths of that of
// H20, 0 if none accepts it; and the order in which they try the two.
type adoptionCase struct {
	speed int64
	order core.ModelOrder
}

// adoptionCases have the speeds of ASI (§1 and §5.1): as delivered, and optimized.
var adoptionCases = [...]adoptionCase{
	{0, core.Fastest}, {800, core.Fastest}, {800, core.LeastWanted}, {1020, core.Fastest}, {1020, core.LeastWanted},
}

func (c adoptionCase) String() string {
	if c.speed == 0 {
		return "H20 alone"
	}
	return fmt.Sprintf("H20 or XPU-A=%g, %s", float64(c.speed)/1000, c.order)
}

func runASIAdoption(ctx context.Context, o Options) (Result, error) {
	seeds := o.Seeds
	if len(seeds) == 0 {
		seeds = []int64{0, 1, 2}
	}
	const cases = len(adoptionCases)
	all := make([]*adoptionRun, cases*len(seeds))
	say := func(i int) {
		o.say("two and a half days of asi, generative jobs for %s, seed %d", adoptionCases[i%cases], seeds[i/cases])
	}
	if err := inParallel(ctx, len(all), say, func(i int) (err error) {
		all[i], err = adoptionCases[i%cases].play(ctx, uint64(seeds[i/cases]), adoptionGPUs)
		return err
	}); err != nil {
		return nil, err
	}
	t := &Table{
		Caption: fmt.Sprintf("Two days of the built-in workload asi on a tenth of its GPUs, %d seeds, under the default policy with placement.models as said;\n"+
			"the reference: Heterogeneity at Hyperscale (ASI), §5.1.", len(seeds)),
		Notes: []string{
			"Inputs, not outcomes: XPU-A is 0.8 times as fast as H20 as delivered, and 1.02 times if optimized (both ASI); how much of each model is requested\n" +
				fmt.Sprintf("(asi); and that %d %% of the generative jobs for H20 accept XPU-A too, which is assumed. The paper has no such jobs and no such policy: there,\n", adoptionShare) +
				"users ask for 2.5 times as much XPU-A after the optimization. So no row is judged.",
			"Jobs that have not started at the end count as if they started then. Run times from submission to end are of the jobs that ended in all five cases.",
		},
	}
	for k, c := range adoptionCases {
		sum := newAdoptionRun()
		for s := range seeds {
			of := all[s*cases : (s+1)*cases]
			sum.add(of[k], func(name string) bool {
				return !slices.ContainsFunc(of, func(r *adoptionRun) bool { return r.took[name] == 0 })
			})
		}
		t.Rows = append(t.Rows, sum.rows(c.String())...)
	}
	return t, nil
}

// eitherModel reports whether a job of asi is one of those that accept XPU-A beside H20, where some do.
func eitherModel(j *workload.Job) bool {
	t := &j.Tasks[0]
	if len(j.Tasks) > 1 || t.Name != "genai" || t.Models[0] != "H20" || len(t.Models) > 1 && len(t.Speeds) == 0 {
		return false
	}
	h := fnv.New32a()
	h.Write([]byte(j.Name))
	return h.Sum32()%100 < adoptionShare
}

// accepting yields the jobs, of which some accept XPU-A at a speed.
func accepting(jobs workload.Jobs, speed int64) workload.Jobs {
	return func(yield func(workload.Job, error) bool) {
		for j, err := range jobs {
			if err == nil && speed > 0 && len(j.Tasks[0].Models) > 0 && eitherModel(&j) {
				j.Tasks = slices.Clone(j.Tasks)
				j.Tasks[0].Models, j.Tasks[0].Speeds = []string{"H20", "XPU-A"}, []int64{1000, speed}
			}
			if !yield(j, err) {
				return
			}
		}
	}
}

// play runs a case with a seed on about so many GPUs.
func (c adoptionCase) play(ctx context.Context, seed uint64, gpus int) (*adoptionRun, error) {
	wo := workload.Options{Seed: seed, GPUs: gpus}
	cluster, err := workload.OpenCluster("asi", wo)
	if err != nil {
		return nil, err
	}
	wo.Cluster = &cluster
	jobs, _, err := workload.OpenJobs("asi", wo)
	if err != nil {
		return nil, err
	}
	doc, _ := policy.ByName("default")
	p := doc.Policy
	p.Models = c.order
	r := newAdoptionRun()
	stats, err := sim.Run(ctx, sim.Config{Cluster: cluster, Jobs: accepting(jobs, c.speed), Policy: p, Seed: seed, Until: adoptionUntil}, r)
	if err == nil && stats.Interrupted {
		err = ctx.Err()
	}
	r.finish()
	return r, err
}

// adopters are jobs by the models that they accept where some accept two, and by class.
type adopters struct {
	models string // H20, XPU-A, or "either"; "" for others
	class  core.Class
}

func adoptersOf(j *workload.Job) adopters {
	switch m := j.Tasks[0].Models; {
	case len(m) == 0:
		return adopters{"", j.Class}
	case eitherModel(j):
		return adopters{"either", j.Class}
	case len(m) == 1 && (m[0] == "H20" || m[0] == "XPU-A"):
		return adopters{m[0], j.Class}
	}
	return adopters{"", j.Class}
}

// adoptionRun is a [sim.Sink] that measures a run, or the sum over several.
type adoptionRun struct {
	now     core.Time
	modelOf map[string]string // by node
	gpus    map[string]float64
	held    map[string]*[2]core.Milli // by model, then by class
	used    map[string]*[2]float64    // the same, in GPU-seconds
	waiting map[*sim.Live]bool        // those that count and have not started
	waits   map[adopters][]float64    // seconds
	took    map[string]float64        // of jobs that ended, from submission
	by      map[string]adopters       // those
	times   map[adopters][]float64    // of those that count, in sums
}

var _ sim.Sink = (*adoptionRun)(nil)

func newAdoptionRun() *adoptionRun {
	return &adoptionRun{
		modelOf: map[string]string{}, gpus: map[string]float64{}, held: map[string]*[2]core.Milli{}, used: map[string]*[2]float64{},
		waiting: map[*sim.Live]bool{}, waits: map[adopters][]float64{}, took: map[string]float64{}, by: map[string]adopters{}, times: map[adopters][]float64{},
	}
}

// add adds the run of a seed, with the times of the jobs that count.
func (r *adoptionRun) add(o *adoptionRun, counts func(name string) bool) {
	for m, u := range o.used {
		if r.used[m] == nil {
			r.used[m] = new([2]float64)
		}
		for c := range u {
			r.used[m][c] += u[c]
		}
		r.gpus[m] += o.gpus[m]
	}
	for of, w := range o.waits {
		r.waits[of] = append(r.waits[of], w...)
	}
	for name, s := range o.took {
		if counts(name) {
			r.times[o.by[name]] = append(r.times[o.by[name]], s)
		}
	}
}

// allocated returns how much of a model jobs of a class hold, in per cent.
func (r *adoptionRun) allocated(model string, c core.Class) float64 {
	if r.used[model] == nil {
		return 0
	}
	return 100 * r.used[model][c] / (r.gpus[model] * (adoptionUntil - adoptionFrom).Seconds())
}

func (r *adoptionRun) rows(name string) []Row {
	var out []Row
	row := func(figure string, x float64, unit string) {
		out = append(out, Row{Figure: name + ": " + figure, Bound: "none", Ours: x, Unit: unit, Within: true})
	}
	for _, m := range []string{"XPU-A", "H20"} {
		hp, lp := r.allocated(m, core.HP), r.allocated(m, core.LP)
		row(m+" allocated to HP jobs", hp, "%")
		row(m+" allocated", hp+lp, "%")
	}
	for _, of := range []adopters{{"H20", core.HP}, {"XPU-A", core.HP}, {"either", core.HP}, {"H20", core.LP}, {"XPU-A", core.LP}, {"either", core.LP}} {
		slices.Sort(r.waits[of]) // the order of summing must not matter
		what := of.models + " alone"
		if of.models == "either" {
			what = "H20 that may accept XPU-A"
		}
		row(fmt.Sprintf("wait of %s jobs for %s, mean", of.class, what), meanOf(r.waits[of]), "s")
	}
	for _, of := range []adopters{{"either", core.HP}, {"either", core.LP}} {
		slices.Sort(r.times[of])
		row(fmt.Sprintf("submission to end of %s jobs for H20 that may accept XPU-A, mean", of.class), meanOf(r.times[of])/3600, "h")
	}
	return out
}

func (r *adoptionRun) advance(t core.Time) {
	from, to := max(r.now, adoptionFrom), min(t, adoptionUntil)
	r.now = t
	if to <= from {
		return
	}
	for m, held := range r.held {
		for c := range held {
			r.used[m][c] += float64(held[c]) / float64(core.WholeGPU) * (to - from).Seconds()
		}
	}
}

func (r *adoptionRun) hold(l *sim.Live, pods []core.Placement, by core.Milli) {
	for i := range pods {
		if pods[i].GPUs != 0 {
			r.held[r.modelOf[pods[i].Node]][l.Class] += by * core.Milli(bits.OnesCount64(pods[i].GPUs)) * pods[i].GPU
		}
	}
}

// finish ends the run. What still waits has waited until then.
func (r *adoptionRun) finish() {
	r.advance(adoptionUntil)
	for l := range r.waiting {
		of := adoptersOf(&l.Job)
		r.waits[of] = append(r.waits[of], (adoptionUntil - l.Submitted).Seconds())
	}
}

// Node implements [sim.Sink].
func (r *adoptionRun) Node(t core.Time, n *core.Node, up bool) error {
	r.advance(t)
	if !up {
		return nil
	}
	r.modelOf[n.Name] = n.Model
	r.gpus[n.Model] += float64(n.GPUs)
	if r.held[n.Model] == nil {
		r.held[n.Model], r.used[n.Model] = new([2]core.Milli), new([2]float64)
	}
	return nil
}

// Submitted implements [sim.Sink].
func (r *adoptionRun) Submitted(t core.Time, l *sim.Live) error {
	r.advance(t)
	if l.Submitted >= adoptionFrom {
		r.waiting[l] = true
	}
	return nil
}

// Bound implements [sim.Sink].
func (r *adoptionRun) Bound(t core.Time, l *sim.Live, pods []core.Placement, _ core.Reason) error {
	r.advance(t)
	r.hold(l, pods, 1)
	if r.waiting[l] {
		delete(r.waiting, l)
		of := adoptersOf(&l.Job)
		r.waits[of] = append(r.waits[of], (t - l.Submitted).Seconds())
	}
	return nil
}

// Released implements [sim.Sink].
func (r *adoptionRun) Released(t core.Time, l *sim.Live, pods []core.Placement, _ sim.Release, _ sim.Eviction) error {
	r.advance(t)
	r.hold(l, pods, -1)
	return nil
}

// Ended implements [sim.Sink].
func (r *adoptionRun) Ended(t core.Time, l *sim.Live, rejected *sim.Rejection) error {
	r.advance(t)
	delete(r.waiting, l)
	if rejected == nil && l.Submitted >= adoptionFrom {
		r.took[l.Name], r.by[l.Name] = (t - l.Submitted).Seconds(), adoptersOf(&l.Job)
	}
	return nil
}
