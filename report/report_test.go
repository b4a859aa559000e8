package report

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/metrics"
)

// run returns a run with a figure everywhere, as wide as figures get.
func run(name string) Run {
	r := Run{Name: name, Summary: metrics.Summary{
		Policy: name, Seed: 7, VirtualSeconds: 15552000, WallSeconds: 930.5, Decisions: 123456789, DecisionsPerSecond: 132677,
		DecisionSHA256: strings.Repeat("f", 64), PeakRSSMiB: 20480, Jobs: metrics.Jobs{Submitted: 14000000, Completed: 13999999},
		GAR: metrics.Ratios{Mean: 1, P5: 0.5, P50: 1, P95: 1}, SOR: 1, GFR: metrics.Ratios{Mean: 1, P95: 1},
		JCT: metrics.Times{Mean: 123456, P50: 1e7, P90: 1e8, P99: 1e8}, Queueing: metrics.Times{Mean: 98765, P50: 1e7, P99: 1e8},
		Preemptions: 123456, LostGPUHours: 123456.7, Window: metrics.Window{To: 15552000, Is: "first submission to last event"},
	}}
	for _, class := range metrics.Classes {
		r.Summary.JWTD = append(r.Summary.JWTD, metrics.Waiting{
			Class: class, Jobs: 1234567, Times: metrics.Times{Mean: 123456, P50: 100, P90: 1e7, P99: 1e8},
		})
		r.Summary.JTTED = append(r.Summary.JTTED, metrics.Distance{Class: class, Jobs: 9, NodeRatio: 1.25, GroupRatio: 10.5})
	}
	for i := range int64(4097) {
		r.Series = append(r.Series, metrics.Sample{
			T: core.Time(i) * 3600 * core.Second, Allocated: core.Milli(i * 1000), Available: 4096,
			FragmentedNodes: 20, GPUNodes: 512, Pending: i * 7, Running: 4096 - i,
		})
	}
	return r
}

func three() []Run {
	return []Run{run("BestEffortFIFO"), run("a policy with a name that is too long"), run("Backfill")}
}

func TestTextFitsTheScreen(t *testing.T) {
	six := append(three(), three()...)
	for _, runs := range [][]Run{{run("default")}, three(), six, {{}}, {{}, {}}} {
		var b bytes.Buffer
		if err := Text(&b, runs); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > screen {
				t.Errorf("%d runs: a line of %d characters: %s", len(runs), n, line)
			}
		}
	}
}

func TestComparison(t *testing.T) {
	a, b := run("Backfill"), run("StrictFIFO")
	a.Summary.GAR.Mean, a.Summary.Queueing.Mean = 0.871, 90
	b.Summary.GAR.Mean, b.Summary.Queueing.Mean = 0.6449, 7260
	var out bytes.Buffer
	if err := Text(&out, []Run{a, b}); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"Backfill    87.1%  100.0%  100.0%   90s  116d  1157d", "StrictFIFO  64.5%  100.0%  100.0%    2h  116d  1157d"} {
		if !strings.Contains(out.String(), row) {
			t.Errorf("no row %q in\n%s", row, out.String())
		}
	}
}

func TestFormats(t *testing.T) {
	for in, want := range map[float64]string{
		0: "0s", 0.25: "0.25s", 1: "1s", 12.34: "12.3s", 119: "119s", 120: "2m", 7199: "120m", 7200: "2h", 172800: "2d", 1e8: "1157d",
	} {
		if got := duration(in); got != want {
			t.Errorf("duration(%v) = %s, want %s", in, got, want)
		}
	}
	for in, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -999: "-999"} {
		if got := count(in); got != want {
			t.Errorf("count(%d) = %s, want %s", in, got, want)
		}
	}
	for in, want := range map[float64]string{0: "0", 9.96: "10", 1234: "1234", 12345: "12.3k", 1.5e6: "1.5M", 2e9: "2G"} {
		if got := short(in); got != want {
			t.Errorf("short(%v) = %s, want %s", in, got, want)
		}
	}
}
