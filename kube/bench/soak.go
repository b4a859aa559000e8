package bench

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/muster-sched/muster/api/v1alpha1"
)

// Row is a line of the table of a measurement over time.
type Row struct {
	// At is when the window ended, since the scheduler began, in seconds.
	At float64 `json:"at_s"`
	// Phase says what the cluster was under: "churn", "pods=100000", "after", "rest".
	Phase string `json:"phase"`
	// Bound and Rate are the bindings in the window, altogether and in a second.
	Bound int     `json:"bound"`
	Rate  float64 `json:"pods_per_s"`
	// P50, P99 and Max are of the times from a pod's creation to its binding, in seconds.
	P50 float64 `json:"p50_s"`
	P99 float64 `json:"p99_s"`
	Max float64 `json:"max_s"`
	// Pods of the churn are there, of which Waiting are not bound.
	Pods    int `json:"pods"`
	Waiting int `json:"waiting"`
	// Failed are requests of the measurement that the API server refused, or did not answer.
	Failed int `json:"failed"`
	// CPU is the share of a core that the scheduler used in the window.
	CPU float64 `json:"cpu"`
	// Live and Resident are of the scheduler, in MiB: see [Usage].
	Live       float64 `json:"heap_live_mib"`
	Resident   float64 `json:"resident_mib"`
	Goroutines int     `json:"goroutines"`
}

// WriteRowHeader writes the header of a table of rows.
func WriteRowHeader(w io.Writer) {
	fmt.Fprintf(w, "%7s %-16s %8s %7s %8s %8s %8s %7s %7s %6s %5s %8s %8s %10s\n",
		"TIME", "PHASE", "BOUND", "PODS/S", "P50", "P99", "MAX", "PODS", "WAITING", "FAILED", "CPU", "HEAP", "RESIDENT", "GOROUTINES")
}

// Write writes the row as a line of the table.
func (r *Row) Write(w io.Writer) {
	fmt.Fprintf(w, "%6.0fs %-16s %8d %7.1f %7.3fs %7.3fs %7.3fs %7d %7d %6d %4.0f%% %5.0fMiB %5.0fMiB %10d\n",
		r.At, r.Phase, r.Bound, r.Rate, r.P50, r.P99, r.Max, r.Pods, r.Waiting, r.Failed, 100*r.CPU, r.Live, r.Resident, r.Goroutines)
}

// Soak is a measurement of a scheduler over time.
type Soak struct {
	Cluster *Cluster
	// Program is muster, and Kubeconfig the file with which it reaches the cluster.
	Program, Kubeconfig string
	// Flags are more flags of the scheduler.
	Flags []string
	Churn Churn
	// For is how long the churn is watched, Every how long the window of a row is.
	For, Every time.Duration
	// Burdens are what a tenant does meanwhile, one after the other: the churn is watched
	// for For before each, while it lasts and for as long once it is there, and after it.
	Burdens []Burden
	// Tenant is the namespace and the queue of the pods of burdens.
	Tenant string
	// Rest is how long the scheduler is watched when all pods are gone.
	Rest time.Duration
	// Told is called with each row.
	Told func(*Row)
}

// soaking is a soak under way.
type soaking struct {
	*Soak
	churning *Churning
	process  *Process
	began    time.Time
	last     time.Time
	before   Usage
}

// Run starts the scheduler and measures. All pods of the churn and of the tenant are gone
// when it returns.
func (s *Soak) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	process, err := StartScheduler(ctx, s.Program, s.Kubeconfig, s.Flags...)
	if err != nil {
		return err
	}
	if err := s.Cluster.WarmUp(ctx, v1alpha1.SchedulerName); err != nil {
		return err
	}
	r := &soaking{Soak: s, process: process, began: time.Now(), last: time.Now()}
	if r.churning, err = s.Cluster.Start(ctx, s.Churn); err != nil {
		return err
	}
	defer r.churning.Stop()
	if err := r.watch(ctx, "churn", s.For); err != nil {
		return err
	}
	for _, b := range s.Burdens {
		name := fmt.Sprintf("%s=%d", b.What, b.N)
		if err := r.during(ctx, name+"...", func(ctx context.Context) error { return s.Cluster.Lay(ctx, b, s.Tenant, s.Tenant) }); err != nil {
			return err
		}
		if err := r.watch(ctx, name, s.For); err != nil {
			return err
		}
		if err := r.during(ctx, "leaving", func(ctx context.Context) error { return s.Cluster.Lift(ctx, s.Tenant) }); err != nil {
			return err
		}
		if err := r.watch(ctx, "after", s.For); err != nil {
			return err
		}
	}
	r.churning.StopArrivals()
	return r.rest(ctx)
}

// watch tells rows for a time.
func (r *soaking) watch(ctx context.Context, phase string, d time.Duration) error {
	for end := time.Now().Add(d); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(r.Every, time.Until(end))):
		}
		if err := r.tell(ctx, phase); err != nil {
			return err
		}
	}
	return nil
}

// during tells rows until do has ended.
func (r *soaking) during(ctx context.Context, phase string, do func(context.Context) error) error {
	over := make(chan error, 1)
	go func() { over <- do(ctx) }()
	for {
		select {
		case err := <-over:
			if err != nil {
				return err
			}
			return r.tell(ctx, phase)
		case <-time.After(r.Every):
		}
		if err := r.tell(ctx, phase); err != nil {
			return err
		}
	}
}

// rest deletes the pods and watches the scheduler for a time.
func (r *soaking) rest(ctx context.Context) error {
	if err := r.during(ctx, "leaving", func(ctx context.Context) error { return r.Cluster.Lift(ctx, r.Churn.Namespace) }); err != nil {
		return err
	}
	return r.watch(ctx, "rest", r.Rest)
}

// tell tells the row of the window that ends now.
func (r *soaking) tell(ctx context.Context, phase string) error {
	w, there, waiting := r.churning.Cut()
	u, err := r.process.Usage(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	span := now.Sub(r.last).Seconds()
	row := &Row{
		At: now.Sub(r.began).Seconds(), Phase: phase, Bound: w.Bound, Rate: float64(w.Bound) / span,
		P50: w.Quantile(0.5).Seconds(), P99: w.Quantile(0.99).Seconds(), Max: w.Quantile(1).Seconds(), Pods: there, Waiting: waiting, Failed: w.Failed,
		CPU: (u.CPU - r.before.CPU) / span, Live: u.Live / (1 << 20), Resident: u.Resident / (1 << 20), Goroutines: u.Goroutines,
	}
	r.last, r.before = now, u
	r.Told(row)
	return nil
}
