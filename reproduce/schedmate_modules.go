package reproduce

import (
	"context"
	"fmt"
	"strings"

	"github.com/muster-sched/muster/advisor"
	"github.com/muster-sched/muster/semantic/estimate"
	"github.com/muster-sched/muster/sim"
	"github.com/muster-sched/muster/workload"
)

var schedmateModules = Experiment{
	Name:  "schedmate-modules",
	Title: "How long recurring jobs take, predicted from finished ones",
	Takes: []string{"traces"},
	run:   runSchedmateModules,
}

// What SchedMate reports for 500 jobs with their code (§5.4), and what is aimed at.
const (
	advisorPaper = 85.7
	advisorGoal  = 85
)

// predictionSet is jobs of which some recur.
type predictionSet struct {
	name string
	jobs []workload.Job
	same func(*workload.Job) string
	runs int // after so many runs that ended, a job recurs
}

// predictors are the advisor and its opponents, each of which knows nothing yet.
func predictors(ctx context.Context) (names []string, all []sim.Advisor, err error) {
	h, err := advisor.NewHistory(ctx, nil, estimate.Default, true)
	return []string{"advisor", "rolling estimate (QSSF)", "mean of the user"}, []sim.Advisor{leastError{h}, &advisor.Rolling{}, &advisor.UserMean{}}, err
}

func runSchedmateModules(ctx context.Context, o Options) (Result, error) {
	file, err := o.trace("philly/jobs.csv.gz", "Philly, job level")
	if err != nil {
		return nil, err
	}
	philly, err := readJobs(file, workload.Options{})
	if err != nil {
		return nil, err
	}
	t := &Table{Caption: "Run times that are predicted when a job is submitted, from the jobs that had ended by then, and the true ones. A job of which nothing is predicted counts as wrong.\n" +
		"Reference: SchedMate §5.4, 500 jobs of a private trace with their code; of these no public trace has any."}
	sets := []predictionSet{{"philly", philly, samePhilly, 5}}
	for _, spread := range []float64{0.25, 0.5, 1} {
		r := recurringJobs{jobs: 6000, days: 14, spread: spread, seed: 1}
		sets = append(sets, predictionSet{fmt.Sprintf("generated, spread %g", spread), r.make(), sameRecurring, 4})
	}
	for _, s := range sets {
		o.say("%s: %d jobs", s.name, len(s.jobs))
		rows, err := s.rows(ctx)
		if err != nil {
			return nil, err
		}
		t.Rows = append(t.Rows, rows...)
	}
	t.Notes = moduleNotes
	return t, nil
}

// rows are the figures of a set: the first is held to the goal.
func (s *predictionSet) rows(ctx context.Context) ([]Row, error) {
	names, all, err := predictors(ctx)
	if err != nil {
		return nil, err
	}
	var rows []Row
	for i, by := range all {
		p, err := foretell(s.jobs, by, s.same)
		if err != nil {
			return nil, err
		}
		again := recurring(p, s.runs)
		e := errorsOf(again)
		figure := func(what string, x float64) Row {
			return Row{Figure: s.name + ", " + names[i] + ": " + what, Bound: "none", Ours: x, Unit: "%", Within: true}
		}
		first := figure("relative error below 100 %", 100*e.below100)
		if i == 0 {
			rows = append(rows, figure("jobs that recur, of all", 100*float64(len(again))/float64(len(p))))
			first = atLeast(first.Figure, advisorPaper, advisorGoal, 100*e.below100, "%")
		}
		rows = append(rows, first, figure("from half to double", 100*e.twofold), figure("median relative error", 100*e.median))
	}
	return rows, nil
}

// samePhilly is all that Philly's public tables say of a job: without users and names, what recurs is not known.
func samePhilly(j *workload.Job) string { return fmt.Sprint(j.Queue, " ", j.GPUs()) }

var moduleNotes = []string{strings.Join([]string{
	"philly is all 66,992 jobs. The public tables have no user, name or command: a job counts as recurring if at least 5 jobs of its virtual",
	"cluster on as many GPUs had ended, which is nearly every job. So the advisor knows no more than that, and which of them ended last.",
}, " "), strings.Join([]string{
	"The relative error of an estimate that is too low is below 100 % whatever it is: half of the paper's measure. So the share from half to double",
	"of the truth is given, too. The advisor gives the value with the least mean relative error, which is below the median of the jobs that it rests on.",
}, " "), strings.Join([]string{
	"No public excerpt of PAI's tables says which jobs are runs of the same job and when they came. The generated jobs have the median (5,600 s) and spread of the 5,000",
	"run times of PAI in Hydra's excerpt. Assumed are that 65 % of the jobs recur at least 5 times, 60 users, that 30 % of the runs have another word in their name, and",
	"the spread within a job: the standard deviation of the logarithm of its run times, from which the figures follow. Recurring: 4 runs had ended.",
}, " ")}
