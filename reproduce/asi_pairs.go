package reproduce

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/disagg"
	"github.com/muster-sched/muster/disagg/plan"
	"github.com/muster-sched/muster/disagg/roofline"
)

var asiPairs = Experiment{
	Name:  "asi-pairs",
	Title: "Pairs of unlike GPUs, by what they serve for their price at their distance, beside the nearest and the fastest",
	run:   runASIPairs,
	Takes: []string{"seeds"},
}

// The fleet: 6 spines of 4 leaf groups, each of 4 nodes with 8 GPUs of one model. Links by distance.
const (
	pairSpines, pairLeaves, pairNodes, pairGPUs = 6, 4, 4, 8
	pairJobs                                    = 4000 // arrive after the fleet has filled up
)

// pairLoads are how many of the GPUs jobs hold before others end: as many as there are, or a share.
var pairLoads = []float64{0.5, 1}

var (
	pairModels = []string{"A100", "L40S", "H100"}
	pairLinks  = []string{"400gbps/5us", "100gbps/10us", "10gbps/30us"}
)

// pairChoice is how jobs say which pair they want.
type pairChoice struct {
	name   string
	listed func(all []core.Combination) []core.Combination
}

var pairChoices = []pairChoice{
	{"two alike", func(all []core.Combination) (out []core.Combination) {
		for _, c := range all {
			if c.Models[0] == c.Models[1] {
				out = append(out, c)
			}
		}
		return out
	}},
	{"the fastest for the price, wherever it is", func(all []core.Combination) (out []core.Combination) {
		for _, c := range all {
			c.Rates = c.Rates[:1]
			out = append(out, c)
		}
		return out
	}},
	{"any pair, the nearest", func(all []core.Combination) (out []core.Combination) {
		for _, c := range all {
			c.Rates, c.Price = []int64{1000}, 1000
			out = append(out, c)
		}
		return out
	}},
	{"by rate for the price at each distance", func(all []core.Combination) []core.Combination { return all }},
}

// runASIPairs lets jobs of five models come and go on a full fleet, and adds up what they serve.
func runASIPairs(ctx context.Context, o Options) (Result, error) {
	seeds := o.Seeds
	if len(seeds) == 0 {
		seeds = []int64{0, 1, 2}
	}
	listed, err := pairLists(o)
	if err != nil {
		return nil, err
	}
	t := &Table{
		Caption: fmt.Sprintf("Jobs of five models, each on a pair of GPUs, come and go on %d GPUs of three models; %d seeds. The question is that of Heterogeneity at Hyperscale (ASI),\n"+
			"§5.2: specialization or locality. The paper has no answer to compare with, so no row is judged.", pairSpines*pairLeaves*pairNodes*pairGPUs, len(seeds)),
		Notes: []string{
			"Rates are the planner's (muster disagg pairs), from rooflines; prices are those of Tessera's Table I. The links (400, 100 and 10 Gbps by distance), the fleet (leaf groups\n" +
				"of one model, drawn with equal chances) and the mix (five models, drawn with equal chances) are inputs. A rate of 1 is two A100 side by side.",
		},
	}
	for _, load := range pairLoads {
		for _, c := range pairChoices {
			sum := pairsServed{}
			for _, seed := range seeds {
				o.say("%s, %.0f %% of the GPUs, seed %d", c.name, 100*load, seed)
				one, err := servePairs(ctx, uint64(seed), load, listed, c.listed)
				if err != nil {
					return nil, err
				}
				sum.add(one)
			}
			t.Rows = append(t.Rows, sum.rows(fmt.Sprintf("%.0f %% held, %s", 100*load, c.name))...)
		}
	}
	return t, nil
}

// pairLists returns what the jobs of each model can list.
func pairLists(o Options) ([][]core.Combination, error) {
	links, err := disagg.ParseDistances(pairLinks)
	if err != nil {
		return nil, err
	}
	prices := map[string]float64{}
	for _, s := range roofline.Specs {
		prices[s.Name] = s.Price
	}
	var out [][]core.Combination
	for i := range roofline.All {
		o.say("pairs for %s", roofline.All[i].Name)
		profile, _ := roofline.All[i].Generate(pairModels, roofline.Offline)
		pairs, err := profile.Pairs(pairModels, links, nil, prices, plan.Options{Alike: true})
		if err != nil {
			return nil, err
		}
		var list []core.Combination
		for k := range pairs {
			list = append(list, pairs[k].Combination())
		}
		out = append(out, list)
	}
	return out, nil
}

// pairsServed is what jobs serve, and cost, summed over the moments after each of them came.
type pairsServed struct {
	rate, price, jobs, unlike float64
	apart                     [3]float64
	moments                   float64
}

func (s *pairsServed) add(o pairsServed) {
	s.rate, s.price, s.jobs, s.unlike, s.moments = s.rate+o.rate, s.price+o.price, s.jobs+o.jobs, s.unlike+o.unlike, s.moments+o.moments
	for i := range s.apart {
		s.apart[i] += o.apart[i]
	}
}

func (s *pairsServed) rows(choice string) []Row {
	row := func(figure string, ours float64, unit string) Row {
		return Row{Figure: choice + ": " + figure, Ours: ours, Unit: unit, Bound: "none", Within: true}
	}
	return []Row{
		row("served for the price", 1000*s.rate/s.price, "per 1000"),
		row("served by a job", s.rate/s.jobs/1000, ""),
		row("on unlike GPUs", 100*s.unlike/s.jobs, "%"),
		row("in one leaf group", 100*s.apart[0]/s.jobs, "%"),
	}
}

// pairJob is a job that runs.
type pairJob struct {
	name  string
	of    core.Combination // what it is worth, whatever it listed
	apart int
}

// servePairs lets jobs come to a fleet; when they hold the share load of the GPUs, or one finds no room, jobs drawn at random end.
func servePairs(ctx context.Context, seed uint64, load float64, lists [][]core.Combination, choose func([]core.Combination) []core.Combination) (pairsServed, error) {
	rng := rand.New(rand.NewPCG(seed, 17))
	p, _ := policy.ByName("default")
	e, err := core.New(core.Config{Policy: p.Policy, Levels: []string{"spine", "leaf"}})
	if err != nil {
		return pairsServed{}, err
	}
	at := map[string]*core.Node{}
	now := core.Time(0)
	if err := e.Apply(now, core.QueueSet{Queue: core.Queue{Name: "q", Weight: 1}}); err != nil {
		return pairsServed{}, err
	}
	for leaf := range pairSpines * pairLeaves {
		model := pairModels[rng.IntN(len(pairModels))]
		for i := range pairNodes {
			n := core.Node{Name: fmt.Sprintf("n-%d-%d", leaf, i), Model: model, GPUs: pairGPUs, Domains: []string{fmt.Sprint("s", leaf/pairLeaves), fmt.Sprint("l", leaf)}}
			at[n.Name] = &n
			if err := e.Apply(now, core.NodeAdded{Node: n}); err != nil {
				return pairsServed{}, err
			}
		}
	}
	var run []pairJob
	var s pairsServed
	filled, after := false, 0
	for k := 0; after < pairJobs; k++ {
		if ctx.Err() != nil {
			return s, ctx.Err()
		}
		// 1. A job comes, and starts when enough others have ended.
		all := lists[rng.IntN(len(lists))]
		j := core.Job{Name: fmt.Sprint("j", k), Queue: "q", Kind: core.Inference, Gang: true, Submitted: now, Combinations: choose(all)}
		for t := range 2 {
			task := core.Task{Name: fmt.Sprint("t", t), Pods: 1}
			task.GPU, task.Models = core.WholeGPU, core.CombinedModels(j.Combinations, t)
			j.Tasks = append(j.Tasks, task)
		}
		now += core.Second
		if err := e.Apply(now, core.JobSubmitted{Job: j}); err != nil {
			return s, err
		}
		for {
			started, ok := startedPair(e.Decide(now), j.Name, at, all)
			if ok {
				run = append(run, started)
			}
			full := float64(2*len(run)) > load*pairSpines*pairLeaves*pairNodes*pairGPUs
			if ok && !full {
				break
			}
			filled = true
			i := rng.IntN(len(run))
			now += core.Second
			if err := e.Apply(now, core.JobEnded{Job: run[i].name}); err != nil {
				return s, err
			}
			run[i] = run[len(run)-1]
			if run = run[:len(run)-1]; ok {
				break
			}
		}
		// 2. Once the fleet is full, what runs after each job counts.
		if !filled {
			continue
		}
		after++
		s.moments++
		for i := range run {
			s.count(&run[i])
		}
	}
	return s, nil
}

func (s *pairsServed) count(r *pairJob) {
	s.jobs++
	s.rate += float64(r.of.Rate(r.apart))
	s.price += float64(r.of.Price)
	s.apart[r.apart]++
	if r.of.Models[0] != r.of.Models[1] {
		s.unlike++
	}
}

// startedPair finds where a job started, and what that is worth by all that it could have listed.
func startedPair(ds []core.Decision, job string, at map[string]*core.Node, all []core.Combination) (pairJob, bool) {
	for i := range ds {
		if ds[i].Op != core.Bind || ds[i].Job != job {
			continue
		}
		a, b := at[ds[i].Pods[0].Node], at[ds[i].Pods[1].Node]
		apart := 0
		for l := range a.Domains {
			if a.Domains[l] != b.Domains[l] {
				apart = len(a.Domains) - l
				break
			}
		}
		for _, c := range all {
			if c.Models[0] == a.Model && c.Models[1] == b.Model {
				return pairJob{name: job, of: c, apart: apart}, true
			}
		}
	}
	return pairJob{}, false
}
