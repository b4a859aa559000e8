package reproduce

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/workload"
)

var openbFGD = Experiment{
	Name:  "openb-fgd",
	Title: "How full a cluster gets with pods that request fractions of GPUs, compared with FGD and other rules",
	Takes: []string{"traces", "nodes", "pods", "policies", "seeds"},
	run:   runOpenbFGD,
}

// openbPublished is the GPU allocation ratio at 130 % of arrivals, in per cent,
// mean of ten seeds, that FGD's authors publish with their simulator.
var openbPublished = map[string]map[string]float64{
	"default":     {"Random": 87.47, "DotProduct": 90.85, "GPUClustering": 91.88, "GPUPacking": 92.00, "BestFit": 93.08, "FGD": 95.39},
	"cpu050":      {"Random": 91.24, "DotProduct": 93.27, "GPUClustering": 93.79, "GPUPacking": 93.72, "BestFit": 93.79, "FGD": 95.21},
	"cpu100":      {"Random": 89.11, "DotProduct": 91.96, "GPUClustering": 92.64, "GPUPacking": 92.72, "BestFit": 93.44, "FGD": 95.35},
	"cpu200":      {"Random": 83.77, "DotProduct": 87.70, "GPUClustering": 89.92, "GPUPacking": 90.22, "BestFit": 92.40, "FGD": 95.04},
	"gpushare40":  {"Random": 86.00, "DotProduct": 89.56, "GPUClustering": 90.02, "GPUPacking": 90.03, "BestFit": 91.69, "FGD": 94.15},
	"gpushare80":  {"Random": 81.22, "DotProduct": 84.49, "GPUClustering": 84.85, "GPUPacking": 85.00, "BestFit": 87.01, "FGD": 89.30},
	"gpushare100": {"Random": 79.44, "DotProduct": 82.42, "GPUClustering": 82.65, "GPUPacking": 82.57, "BestFit": 85.01, "FGD": 86.90},
	"gpuspec10":   {"Random": 87.43, "DotProduct": 90.39, "GPUClustering": 92.18, "GPUPacking": 92.46, "BestFit": 93.30, "FGD": 94.95},
	"gpuspec20":   {"Random": 87.24, "DotProduct": 89.97, "GPUClustering": 92.24, "GPUPacking": 92.94, "BestFit": 93.30, "FGD": 94.84},
	"gpuspec25":   {"Random": 86.94, "DotProduct": 89.63, "GPUClustering": 92.08, "GPUPacking": 92.98, "BestFit": 93.23, "FGD": 94.74},
	"multigpu20":  {"Random": 88.69, "DotProduct": 92.06, "GPUClustering": 93.56, "GPUPacking": 93.71, "BestFit": 93.93, "FGD": 95.65},
	"multigpu30":  {"Random": 89.27, "DotProduct": 93.28, "GPUClustering": 94.72, "GPUPacking": 94.87, "BestFit": 94.72, "FGD": 96.46},
	"multigpu40":  {"Random": 90.09, "DotProduct": 94.19, "GPUClustering": 95.50, "GPUPacking": 95.74, "BestFit": 95.24, "FGD": 96.99},
}

// openbLists are the lists of pods in the order of the study.
var openbLists = []string{
	"default", "cpu050", "cpu100", "cpu200", "gpushare40", "gpushare80", "gpushare100",
	"gpuspec10", "gpuspec20", "gpuspec25", "multigpu20", "multigpu30", "multigpu40",
}

// openbBands is how far, in points, a rule's mean may be from the published one.
var openbBands = map[string]float64{"FGD": 0.2, "GPUPacking": 0.2, "DotProduct": 0.2, "BestFit": 0.35, "GPUClustering": 0.35, "Random": 0.35}

// openbGoals is what Muster's own policies should reach at 130 % of arrivals:
// 0.5 to 1.5 points more than FGD.
var openbGoals = map[string]float64{
	"default": 96.2, "cpu050": 96.2, "cpu100": 96.2, "cpu200": 96.2, "gpushare40": 94.8, "gpushare80": 90.5, "gpushare100": 88.4,
	"gpuspec10": 96.1, "gpuspec20": 96.1, "gpuspec25": 96.1, "multigpu20": 96.7, "multigpu30": 97.1, "multigpu40": 97.5,
}

// openbOwn is the policy that has goals.
const openbOwn = "default"

// Inflation is the result of openb-fgd.
type Inflation struct {
	Lists []InflationList `json:"lists"`
}

// InflationList is the figures of one list of pods.
type InflationList struct {
	List string         `json:"list"`
	Rows []InflationRow `json:"rows"`
}

// InflationRow is the figures of one policy on a list: the allocation ratio when
// 130 % have arrived, in per cent, mean and standard deviation over the seeds;
// At95 and At100 are the means when 95 % and 100 % have. Of one seed it is the
// mean over the arrivals that round to that per cent.
type InflationRow struct {
	Policy     string  `json:"policy"`
	Seeds      []int64 `json:"seeds"`
	Allocation float64 `json:"allocation_pct"`
	Std        float64 `json:"std"`
	At95       float64 `json:"at_95_pct"`
	At100      float64 `json:"at_100_pct"`
	// Published is the study's figure, 0 where it has none.
	Published float64 `json:"published_pct,omitempty"`
	// Goal is the least that a policy of Muster's own should reach, 0 where there
	// is none.
	Goal float64 `json:"goal_pct,omitempty"`
	// Verdict is "pass" or "fail", or empty where there is nothing to compare with:
	// see [InflationList.judge].
	Verdict string `json:"verdict,omitempty"`
	// curve has a mean for each whole per cent of arrivals, from 0 to 130.
	curve []float64
}

func runOpenbFGD(ctx context.Context, o Options) (Result, error) {
	nodes, lists := o.Nodes, o.Pods
	if nodes == "" || len(lists) == 0 {
		dir, err := o.trace("openb-v2023", "Alibaba's GPU trace of 2023")
		if err != nil {
			return nil, err
		}
		if nodes == "" {
			nodes = filepath.Join(dir, "openb_node_list_gpu_node.csv.gz")
		}
		if len(lists) == 0 {
			for _, l := range openbLists {
				lists = append(lists, filepath.Join(dir, "openb_pod_list_"+l+".csv.gz"))
			}
		}
	}
	policies, seeds := o.Policies, o.Seeds
	if len(policies) == 0 {
		policies = []string{"default", "FGD", "BestFit", "GPUPacking", "GPUClustering", "DotProduct", "Random"}
	}
	for s := int64(42); len(o.Seeds) == 0 && s <= 51; s++ {
		seeds = append(seeds, s)
	}
	cluster, err := workload.OpenCluster(nodes, workload.Options{})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(cluster.Nodes, func(a, b core.Node) int { return cmp.Compare(a.Name, b.Name) })
	capacity := int64(0)
	// The study has no network. Muster's reader gives one to clusters without, and then pods of
	// default would leave leaf groups free, for gangs that do not come.
	cluster.Levels = nil
	for i := range cluster.Nodes {
		cluster.Nodes[i].Domains = nil
		capacity += int64(cluster.Nodes[i].GPUs) * int64(core.WholeGPU)
	}
	if capacity == 0 {
		return nil, &workload.Error{File: nodes, Want: "nodes with GPUs, found none"}
	}
	var result Inflation
	var fills []filling
	for _, file := range lists {
		pool, err := readPods(file)
		if err != nil {
			return nil, err
		}
		list := InflationList{List: listName(file)}
		for _, name := range policies {
			p, err := inflationPolicy(name, pool)
			if err != nil {
				return nil, err
			}
			for _, seed := range seeds {
				fills = append(fills, filling{list: list.List, pool: pool, policy: p, seed: seed})
			}
			list.Rows = append(list.Rows, InflationRow{Policy: name, Seeds: seeds, Published: openbPublished[list.List][name]})
		}
		result.Lists = append(result.Lists, list)
	}
	if err := fillAll(ctx, &o, &cluster, capacity, fills); err != nil {
		return nil, err
	}
	for l := range result.Lists {
		for r := range result.Lists[l].Rows {
			result.Lists[l].Rows[r].average(fills[:len(seeds)])
			fills = fills[len(seeds):]
		}
		result.Lists[l].judge()
	}
	return &result, nil
}

// inflationPolicy returns a built-in policy as the experiment uses it: pods come
// one by one, and none makes room for another.
func inflationPolicy(name string, pool []workload.Job) (core.Policy, error) {
	d, ok := policy.ByName(name)
	if !ok {
		return core.Policy{}, &workload.Error{Field: "--policies", Want: fmt.Sprintf("the name of a built-in policy, found %q", name)}
	}
	p := d.Policy
	p.Queueing.Mode = core.BestEffortFIFO
	p.Preempt, p.Room = core.Preempt{}, core.Room{}
	if name == "FGD" { // it knows the list it is tried on
		for i := range pool {
			p.Mix = append(p.Mix, core.Demand{Request: pool[i].Tasks[0].Request, Pods: 1})
		}
	}
	return p, nil
}

// average sets the row's figures from the fillings with its seeds.
func (x *InflationRow) average(fills []filling) {
	var at130 []float64
	for _, f := range fills {
		at130 = append(at130, f.ratio.at(130))
		x.At95 += f.ratio.at(95) / float64(len(fills))
		x.At100 += f.ratio.at(100) / float64(len(fills))
	}
	x.Allocation, x.Std = meanStd(at130)
	x.curve = make([]float64, 131)
	for arrived := range x.curve {
		for _, f := range fills {
			x.curve[arrived] += f.ratio.at(arrived) / float64(len(fills))
		}
	}
}

// listName returns the name of a list of pods by its file's.
func listName(file string) string {
	name := filepath.Base(file)
	for _, s := range []string{".gz", ".csv"} {
		name = strings.TrimSuffix(name, s)
	}
	return strings.TrimPrefix(name, "openb_pod_list_")
}

// readPods reads a list of pods, sorted by name. Some ask for GPUs.
func readPods(file string) ([]workload.Job, error) {
	jobs, err := readJobs(file, workload.Options{})
	if err == nil && !slices.ContainsFunc(jobs, func(j workload.Job) bool { return j.GPUs() > 0 }) {
		err = &workload.Error{File: file, Want: "pods that request GPUs, found none"}
	}
	slices.SortFunc(jobs, func(a, b workload.Job) int { return cmp.Compare(a.Name, b.Name) })
	return jobs, err
}

// meanStd returns the mean of v and the standard deviation of what v samples.
func meanStd(v []float64) (mean, std float64) {
	for _, x := range v {
		mean += x / float64(len(v))
	}
	if len(v) < 2 {
		return mean, 0
	}
	for _, x := range v {
		std += (x - mean) * (x - mean) / float64(len(v)-1)
	}
	return mean, math.Sqrt(std)
}

// JSON writes all figures.
func (r *Inflation) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

const inflationCaption = "GPUs allocated, in per cent of the cluster, when pods of 95, 100 and 130 per cent of it have arrived\n" +
	"(Weng et al., ATC 2023, Figure 9); means over the seeds. The published figures are the results that the authors keep with their code,\n" +
	"github.com/hkust-adsl/kubernetes-scheduler-simulator, experiments/analysis/expected_results, commit 8f3d6417353c. Our default learns the requests as they arrive; FGD knows them in advance."

// Text writes the figures for people.
func (r *Inflation) Text(w io.Writer) error {
	fmt.Fprint(w, inflationCaption+"\n\n")
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "list\tpolicy\tat 95\tat 100\tat 130\tstd\tpublished\tgoal\tdifference\tverdict\t")
	for _, l := range r.Lists {
		for i := range l.Rows {
			x := &l.Rows[i]
			fmt.Fprintf(tw, "%s\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t", l.List, x.Policy, x.At95, x.At100, x.Allocation, x.Std)
			switch {
			case x.Published > 0:
				fmt.Fprintf(tw, "%.2f\t\t%+.2f\t", x.Published, x.Allocation-x.Published)
			case x.Goal > 0:
				fmt.Fprintf(tw, "\t%.2f\t%+.2f\t", x.Goal, x.Allocation-x.Goal)
			default:
				fmt.Fprint(tw, "\t\t\t")
			}
			fmt.Fprintf(tw, "%s\t\n", x.Verdict)
		}
	}
	return tw.Flush()
}

// judge gives the verdicts. A rule of the study passes within its band of the
// published figure; a policy of Muster's own when it reaches the goal and, when
// FGD runs too, is no worse than FGD at 95 % and 100 % of arrivals.
func (l *InflationList) judge() {
	fgd := slices.IndexFunc(l.Rows, func(x InflationRow) bool { return x.Policy == "FGD" })
	for i := range l.Rows {
		x := &l.Rows[i]
		pass := false
		switch {
		case x.Published > 0:
			pass = math.Abs(x.Allocation-x.Published) <= openbBands[x.Policy]
		case x.Policy == openbOwn && openbGoals[l.List] > 0:
			x.Goal = openbGoals[l.List]
			pass = x.Allocation >= x.Goal && (fgd < 0 || x.At95 >= l.Rows[fgd].At95 && x.At100 >= l.Rows[fgd].At100)
		default:
			continue
		}
		x.Verdict = map[bool]string{true: "pass", false: "fail"}[pass]
	}
}

// how says what passes.
func (x *InflationRow) how() string {
	switch {
	case x.Published > 0:
		return fmt.Sprintf("within %g points of the published figure", openbBands[x.Policy])
	case x.Goal > 0:
		return "at least the goal, and no worse than FGD at 95 and 100 %"
	}
	return ""
}

// Passed reports whether no verdict is a failure.
func (r *Inflation) Passed() bool {
	for _, l := range r.Lists {
		for i := range l.Rows {
			if l.Rows[i].Verdict == "fail" {
				return false
			}
		}
	}
	return true
}
