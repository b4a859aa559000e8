package metrics

import (
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/sim"
)

// Summary is the content of summary.json about a run. Keys are added and never
// renamed. Times are in seconds, ratios between 0 and 1.
type Summary struct {
	Policy string `json:"policy"`
	// Cluster and Workload are what the user called the inputs: files or
	// built-in ones.
	Cluster     string  `json:"cluster,omitempty"`
	Workload    string  `json:"workload,omitempty"`
	Seed        uint64  `json:"seed"`
	WallSeconds float64 `json:"wall_seconds"`
	// VirtualSeconds is how long the run took on the virtual clock: from the
	// first submission to the last event.
	VirtualSeconds     float64 `json:"virtual_seconds"`
	Window             Window  `json:"window"`
	Interrupted        bool    `json:"interrupted,omitempty"`
	Decisions          int64   `json:"decisions"`
	DecisionsPerSecond float64 `json:"decisions_per_second"`
	DecisionSHA256     string  `json:"decision_sha256"`
	// Rules is nil in runs of older versions.
	Rules      *Rules     `json:"rules,omitempty"`
	PeakRSSMiB float64    `json:"peak_rss_mib"`
	Jobs       Jobs       `json:"jobs"`
	GAR        Ratios     `json:"gar"`
	SOR        float64    `json:"sor"`
	GFR        Ratios     `json:"gfr"`
	JWTD       []Waiting  `json:"jwtd"`
	JTTED      []Distance `json:"jtted"`
	// Topology is nil in runs of older versions.
	Topology        *Topology `json:"topology,omitempty"`
	JCT             Times     `json:"jct"`
	Queueing        Times     `json:"queueing"`
	MakespanSeconds float64   `json:"makespan_s"`
	Preemptions     int64     `json:"preemptions"`
	// Suspensions count jobs that were suspended instead of evicted, each time.
	Suspensions int64 `json:"suspensions,omitempty"`
	Migrations  int64 `json:"migrations"`
	// MigrationGPUHours is the GPU time of the second places of pods that were being moved.
	MigrationGPUHours float64 `json:"migration_gpu_hours"`
	LostGPUHours      float64 `json:"lost_gpu_hours"`
	// Evictions is nil in runs of older versions.
	Evictions *Evictions `json:"evictions,omitempty"`
	// Defragmentation is nil if the policy made no plan with moves.
	Defragmentation *Defragmentation `json:"defragmentation,omitempty"`
	// HPForecast is nil if the policy does not forecast HP demand, or no forecast was made for a time of the run.
	HPForecast []HPForecast `json:"hp_forecast,omitempty"`
	// Standby is nil if no pod was on standby.
	Standby *Standby `json:"standby,omitempty"`
	// Fragmentation is nil in runs of older versions.
	Fragmentation *Fragmentation `json:"fragmentation,omitempty"`
	// Fairness is nil in runs of older versions, and if no job had GPUs.
	Fairness *Fairness `json:"fairness,omitempty"`
	// Failures is nil in runs without --failures.
	Failures *sim.FailureStats `json:"failures,omitempty"`
	// CPU is nil in runs without --cpu-slowdown.
	CPU *sim.CPUBesideGPU `json:"cpu_beside_gpu,omitempty"`
	// Packed is nil in runs without --profiles.
	Packed *sim.Packed `json:"packed,omitempty"`
	// Trained is nil in runs without jobs whose training was measured.
	Trained *sim.Trained `json:"trained,omitempty"`
}

// Rules are what the policy and the model of the run allow, as far as the audit checks it.
type Rules struct {
	// HPOnly: LP jobs evict none.
	HPOnly bool `json:"hp_only"`
	// Delay is how long a job waits at least before others are evicted for it, in seconds.
	Delay float64 `json:"preempt_delay_s,omitempty"`
	// Lease is how long a job runs at least before it leaves for one that has received less, in seconds;
	// 0: none leaves for that.
	Lease float64 `json:"lease_s,omitempty"`
	// OwnQueue: jobs are preempted only for jobs of their own queue.
	OwnQueue bool `json:"preempted_in_queue,omitempty"`
	// Unprotected: locks do not protect from eviction; ProtectedQueues: only those of jobs in and
	// below these queues do.
	Unprotected     bool     `json:"unprotected,omitempty"`
	ProtectedQueues []string `json:"protected_queues,omitempty"`
	// CPUReserve is the share of a node's cores by GPU that jobs without GPUs leave for each idle GPU.
	CPUReserve float64 `json:"cpu_reserve"`
	// RoomMoves is the most pods that go elsewhere for one job; RoomRestarts says whether they may stop.
	RoomMoves    int  `json:"room_max_moves"`
	RoomRestarts bool `json:"room_restarts"`
	// Forecast is the period of HP demand in seconds, if the policy forecasts it; Estimates says that run
	// times were known beforehand, without which no job is put off.
	Forecast  float64 `json:"forecast_s,omitempty"`
	Estimates bool    `json:"estimates,omitempty"`
	// DefragRestarts says which jobs may restart so that nodes become free: LP or All; empty: none.
	DefragRestarts string `json:"defrag_restarts,omitempty"`
	// MaxRestarts is how often a job restarts within a day after failures, if the policy bounds that.
	MaxRestarts int `json:"recovery_max_restarts,omitempty"`
	// StaleGrace is how long a gang may have fewer pods than its minimum, in seconds.
	StaleGrace float64 `json:"stale_grace_s,omitempty"`
	// LongTerm is there if jobs start by the order LongTermFairness alone: not under StrictFIFO, and without fair shares.
	LongTerm *LongTermRules `json:"long_term,omitempty"`
	// Packing says that two jobs may share GPUs.
	Packing bool `json:"packing,omitempty"`
	// Round is how often jobs with alternatives are given GPUs again, in seconds.
	Round float64 `json:"goodput_round_s,omitempty"`
	// EvictGrace is how long evicted pods take at most to leave, in seconds.
	EvictGrace float64 `json:"evict_grace_s"`
}

// LongTermRules are those of the order LongTermFairness: the half-life in seconds, 0 for none; how far an index looks ahead; what
// a GPU of a model counts, 1 where it is not listed; and the order of the jobs of one queue, empty if it is the same.
type LongTermRules struct {
	HalfLife float64            `json:"half_life_s"`
	Horizon  float64            `json:"horizon_s"`
	Rates    map[string]float64 `json:"rates,omitempty"`
	Jobs     string             `json:"jobs,omitempty"`
}

// longTerm returns the rules of the order; nil under another one.
func longTerm(p *core.Policy) *LongTermRules {
	if p.Queueing.Order != core.LongTermFairness || p.Queueing.Mode == core.StrictFIFO || p.Queueing.FairShare {
		return nil
	}
	r := &LongTermRules{HalfLife: p.Fairness.HalfLife.Seconds(), Horizon: p.Fairness.Horizon().Seconds(), Rates: map[string]float64{}}
	if o := p.Fairness.Jobs; o != 0 && o != core.LongTermFairness {
		r.Jobs = o.String()
	}
	for _, m := range p.Fairness.Rates {
		r.Rates[m.Model] = float64(m.Rate) / 1000
	}
	return r
}

// NewRules returns the rules of a policy; evicted pods leave within grace.
func NewRules(p *core.Policy, grace core.Time) *Rules {
	restarts := ""
	if d := &p.Defrag; d.Every > 0 && d.Restarts != core.NoRestarts {
		restarts = d.Restarts.String()
	}
	return &Rules{
		HPOnly: p.Preempt.HPOnly, Delay: p.Preempt.Delay.Seconds(), Lease: p.Fairness.Lease.Seconds(), OwnQueue: p.Preempt.Priority == core.InQueue && !p.Preempt.Backfill,
		Unprotected: p.Preempt.Unprotected, ProtectedQueues: p.Preempt.ProtectedQueues, CPUReserve: float64(p.CPUOnly.Reserve) / 1000,
		RoomMoves: p.Room.MaxMoves, RoomRestarts: p.Room.Restarts, EvictGrace: grace.Seconds(), StaleGrace: p.Requeue.StaleGrace.Seconds(), MaxRestarts: p.Recovery.MaxRestarts,
		DefragRestarts: restarts, Forecast: p.Spot.Period.Seconds(), LongTerm: longTerm(p), Packing: p.Packing.On, Round: p.Goodput.Round.Seconds(),
	}
}

// Evictions says how long evicted pods took to leave, from the decision until their GPUs were
// free. Killed is the share that did not shut down in time.
type Evictions struct {
	Pods   int64   `json:"pods"`
	Mean   float64 `json:"mean_s"`
	P95    float64 `json:"p95_s"`
	Killed float64 `json:"killed"`
}

// Defragmentation is the plans of a run as they were made.
type Defragmentation struct {
	Plans    int `json:"plans"`
	Moves    int `json:"moves"`
	Restarts int `json:"restarts"` // pods
	Vacated  int `json:"vacated_nodes"`
	// Double is the GPU time for which pods hold their GPUs twice or are restarting, Lost the work that
	// restarts repeat, Gained the GPU time of the vacated nodes until the next plan, Net that less the
	// other two.
	Double float64 `json:"double_gpu_hours"`
	Lost   float64 `json:"lost_gpu_hours"`
	Gained float64 `json:"gained_gpu_hours"`
	Net    float64 `json:"net_gpu_hours"`
}

// NewDefragmentation returns the totals for a summary; nil if there was no plan.
func NewDefragmentation(t core.DefragTotals) *Defragmentation {
	if t.Plans == 0 {
		return nil
	}
	const hour = 3600 * float64(core.WholeGPU)
	return &Defragmentation{
		Plans: t.Plans, Moves: t.Moves, Restarts: t.Restarts, Vacated: t.Vacated,
		Double: float64(t.Cost) / hour, Lost: float64(t.Lost) / hour, Gained: float64(t.Gain) / hour, Net: float64(t.Gain-t.Cost-t.Lost) / hour,
	}
}

// Standby says what pods on standby lent, in the window, and how much of that LP pods used; and
// how long pods took to go on, from the end of their windows until their GPUs were free.
type Standby struct {
	GPUHours  float64 `json:"gpu_hours"`
	Harvested float64 `json:"harvested_gpu_hours"`
	// Ratio is harvested to lent GPU-hours.
	Ratio       float64 `json:"harvested"`
	Resumptions int64   `json:"resumptions"`
	Mean        float64 `json:"resume_mean_s"`
	P95         float64 `json:"resume_p95_s"`
	Max         float64 `json:"resume_max_s"`
	// Bound is how long evictions take at most.
	Bound float64 `json:"bound_s"`
}

// Fairness says what GPU time queues and jobs received of what they deserved.
type Fairness struct {
	Tenants TenantFairness `json:"tenants"`
	Jobs    JobFairness    `json:"jobs"`
	// Users is missing if no job names its user.
	Users  *UsersFairness  `json:"users,omitempty"`
	Queues []QueueFairness `json:"queues"`
	ByUser []UserFairness  `json:"by_user,omitempty"`
}

// UsersFairness sums up the users of queues as [TenantFairness] does the queues.
type UsersFairness struct {
	Users      int     `json:"users"`
	Unfairness float64 `json:"unfairness"`
	Mean       float64 `json:"unfairness_mean"`
	Min        float64 `json:"index_min"`
	Max        float64 `json:"index_max"`
	MaxMin     float64 `json:"max_to_min"`
	Gini       float64 `json:"gini"`
	Met        float64 `json:"met"`
}

// UserFairness is a user of a queue: what the user's jobs there received, and deserved of what those of the queue did.
type UserFairness struct {
	Queue    string  `json:"queue"`
	User     string  `json:"user"`
	Jobs     int64   `json:"jobs"`
	Received float64 `json:"received_gpu_hours"`
	Deserved float64 `json:"deserved_gpu_hours"`
	Index    float64 `json:"index"`
	// Met is the share of what the user deserved that was received at the time.
	Met float64 `json:"met"`
	// Rho is the mean of the user's jobs.
	Rho float64 `json:"rho_mean"`
}

// TenantFairness sums up the queues that had jobs of their own. An index is what a queue received to
// what it deserved.
type TenantFairness struct {
	Tenants int `json:"tenants"`
	// Unfairness is the share of what they deserved, together, that those lack which received less;
	// Mean is its mean over time.
	Unfairness float64 `json:"unfairness"`
	Mean       float64 `json:"unfairness_mean"`
	Min        float64 `json:"index_min"`
	Max        float64 `json:"index_max"`
	MaxMin     float64 `json:"max_to_min"`
	Gini       float64 `json:"gini"`
	// Met is the share of what they deserved, together, that they received at the time.
	Met float64 `json:"met"`
}

// JobFairness sums up the jobs that ended and had GPUs. Rho is the finish-time fairness of Themis: what
// a job deserved until it ended to what it needed. Late is the share of those with a rho above 1.
type JobFairness struct {
	Jobs       int64   `json:"jobs"`
	Unfairness float64 `json:"unfairness"`
	Gini       float64 `json:"gini"`
	Rho        Ratio   `json:"rho"`
	Late       float64 `json:"late"`
}

// Ratio is a distribution over jobs.
type Ratio struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// QueueFairness is a queue with those below it. Own is set of the jobs that such a queue has itself.
type QueueFairness struct {
	Queue    string  `json:"queue"`
	Parent   string  `json:"parent,omitempty"`
	Own      bool    `json:"own,omitempty"`
	Weight   int64   `json:"weight"`
	Jobs     int64   `json:"jobs"` // of its own
	Received float64 `json:"received_gpu_hours"`
	Deserved float64 `json:"deserved_gpu_hours"`
	Index    float64 `json:"index"`
	// Met is the share of what it deserved that it received at the time.
	Met float64 `json:"met"`
	// Rho is the mean of its own jobs.
	Rho float64 `json:"rho_mean"`
}

// Topology says over how many leaf groups gangs were when they were first whole: those of
// several pods that have GPUs and start with all their pods.
type Topology struct {
	Gangs    int64 `json:"gangs"`
	Spanning int64 `json:"spanning"` // in more than one leaf group
	// Entropy is the mean of place.Entropy over the gangs, in nats.
	Entropy float64 `json:"entropy_mean"`
	GPUs    float64 `json:"gpus"` // of the gangs together
	// CrossGPUs are those outside the leaf group that holds most GPUs of their gang.
	CrossGPUs float64 `json:"cross_group_gpus"`
}

// Fragmentation is what became of idle GPUs, on average over the window (see core/frag).
type Fragmentation struct {
	Shapes []ShapeSplit `json:"shapes"`
	Jobs   []JobFit     `json:"jobs"`
}

// ShapeSplit is idle GPUs by what becomes of them, for pods of a shape, or for a job of
// [Fragmentation.Jobs]: a gang that must be within one domain. IdleGPUs is the sum of the others, of the
// nodes that are not lost.
type ShapeSplit struct {
	Shape       string  `json:"shape"`
	IdleGPUs    float64 `json:"idle_gpus"`
	Allocatable float64 `json:"allocatable_gpus"`
	Fractional  float64 `json:"fractional_gpus"`
	Stranded    float64 `json:"stranded_gpus"`
	CPU         float64 `json:"cpu_gpus"`
	// Topology is 0 for single pods, and in runs of older versions.
	Topology float64 `json:"topology_gpus"`
	Other    float64 `json:"other_gpus"`
	Unusable float64 `json:"unusable_gpus"`
}

// JobFit is how many jobs would fit, each on one GPU model: within one domain of the
// narrowest level of the topology, and across domains.
type JobFit struct {
	Job    string  `json:"job"`
	Within float64 `json:"within"`
	Across float64 `json:"across"`
}

// Window is the time over which gar, sor and gfr are averages, in seconds from
// the workload's start.
type Window struct {
	From float64 `json:"from_s"`
	To   float64 `json:"to_s"`
	// Is describes the window in words.
	Is string `json:"is"`
}

// Jobs counts jobs by where they stand at the end of the run: Submitted is the
// sum of the others. A job runs when at least one of its pods is bound.
type Jobs struct {
	Submitted int64 `json:"submitted"`
	Completed int64 `json:"completed"`
	Failed    int64 `json:"failed"`
	Cancelled int64 `json:"cancelled"`
	Running   int64 `json:"running"`
	Pending   int64 `json:"pending"`
	Rejected  int64 `json:"rejected"`
}

// Ratios is the distribution of a ratio over time.
type Ratios struct {
	Mean float64 `json:"mean"`
	P5   float64 `json:"p5"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
}

// Times is a distribution over jobs, in seconds; all 0 when there are none.
type Times struct {
	Mean float64 `json:"mean_s"`
	P50  float64 `json:"p50_s"`
	P90  float64 `json:"p90_s"`
	P99  float64 `json:"p99_s"`
}

// Waiting is the job waiting time distribution of a class. Classes without
// jobs are left out.
type Waiting struct {
	Class string `json:"class"`
	Jobs  int64  `json:"jobs"`
	Times
}

// Distance is the job training time estimation distribution of a class: the
// mean, over its jobs, of nodes used to fewest possible and of leaf groups used
// to fewest possible. Classes without jobs are left out.
type Distance struct {
	Class      string  `json:"class"`
	Jobs       int64   `json:"jobs"`
	NodeRatio  float64 `json:"node_ratio"`
	GroupRatio float64 `json:"group_ratio"`
}
