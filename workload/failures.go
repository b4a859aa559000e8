package workload

import (
	"slices"
	"strings"

	"github.com/muster-sched/muster/core"
)

// FailureKind is a kind of failure of jobs, and how often it happens.
type FailureKind struct {
	// Class names it, such as "infrastructure/gpu".
	Class string
	// GPUHours is the mean GPU time in use between two failures of the kind, in hours; exponential.
	GPUHours float64
	// Stays is the chance, 0..1, that the fault stays on the node: then each job that starts there fails again, after a mean time
	// of Again.
	Stays  float64
	Again  core.Time
	Remedy core.Remedy
}

// AcmeFailures is the name of the built-in failures.
const AcmeFailures = "acme"

// acmeFailures are the infrastructure failures of Acme: counts of six months on two clusters (Hu et al., NSDI 2024, Table 3) over the
// 7.46 million GPU-hours that its summary of the two traces adds up to. How often a fault stays on its node is not published there: in the chains of
// automatic retries on 504 B200 that Lablup reported in 2026, a third succeeded.
var acmeFailures = []FailureKind{
	kindOf("infrastructure/nvlink", 54, 0.67, core.TestNode),
	kindOf("infrastructure/gpu", 21+12, 0.67, core.TestNode), // CUDA and ECC errors
	kindOf("infrastructure/node", 16, 0.67, core.TestNode),
	kindOf("infrastructure/network", 12+6+3, 0.33, core.StrikeNode), // and the timeouts and remote errors of NCCL
	kindOf("infrastructure/storage", 147+10, 0, core.NoStrike),      // connections to other services, and S3
}

func kindOf(class string, count, stays float64, node core.NodeRemedy) FailureKind {
	return FailureKind{
		Class: class, GPUHours: 7_460_000 / count, Stays: stays, Again: 600 * core.Second, Remedy: core.Remedy{Restarts: 3, Node: node},
	}
}

// OpenFailures reads the kinds of failures from a file, or has the built-in ones. Errors are of type *[Error].
func OpenFailures(path string) ([]FailureKind, error) {
	if path == AcmeFailures {
		return acmeFailures, nil
	}
	t, err := openTable(path)
	if err != nil {
		return nil, err
	}
	defer t.close()
	return readFailures(t)
}

var failureColumns = []string{"class", "gpu_hours", "stays", "again_s", "restarts", "node"}

func readFailures(t *table) ([]FailureKind, error) {
	const class, hours, stays, again, restarts, node = 0, 1, 2, 3, 4, 5
	t.use(failureColumns, nil)
	for c := range failureColumns {
		if !t.has(c) {
			return nil, t.fault(failureColumns[c], "this column, as all of "+strings.Join(failureColumns, ", "))
		}
	}
	var out []FailureKind
	err := t.each(func() error {
		k := FailureKind{
			Class: string(t.name(class)), GPUHours: float64(t.count(hours, 1, 1e12)), Stays: float64(t.milli(stays, 1)) / 1000, Again: t.seconds(again),
			Remedy: core.Remedy{Restarts: int(t.count(restarts, 0, 1000)), Node: core.NodeRemedy(t.choice(node, core.NodeRemedies[:]))},
		}
		if slices.ContainsFunc(out, func(o FailureKind) bool { return o.Class == k.Class }) {
			t.wrong(class, "each class once")
		}
		if k.Stays > 0 && k.Again == 0 {
			t.wrong(again, "a time above 0, as the fault may stay on its node")
		}
		out = append(out, k)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if out == nil {
		return nil, &Error{File: t.file, Want: "at least one kind of failure, found none"}
	}
	return out, nil
}
