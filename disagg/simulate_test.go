package disagg

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-sched/muster/disagg/pipeline"
)

// A trace is read with its sizes; a part of it begins at 0 and is stretched; sizes say how often
// phases run.
func TestArrivals(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace.csv")
	text := "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,374,44\n2023-11-16 18:15:47.0,1100,2\n2023-11-16 18:15:48.5,10,1\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	all, err := ReadArrivals(file)
	if err != nil {
		t.Fatal(err)
	}
	part := Part(all, 5e8, 2e9, 2)
	if len(part) != 1 || part[0] != (Arrival{0, 1100, 2}) {
		t.Fatalf("the part is %+v", part)
	}
	p := &Profile{Phases: []Phase{{Name: "prefill", Runs: 1, Per: "context", Tokens: 500}, {Name: "decode", Runs: 100, Per: "generated", Tokens: 1}, {Name: "last", Runs: 2}}}
	got := p.Requests(all, []string{"prefill", "decode", "last"}, 1)
	for i, want := range [][3]int{{1, 44, 2}, {3, 2, 2}, {1, 1, 2}} {
		if [3]int(got[i].Runs) != want {
			t.Errorf("request %d runs %v, want %v", i, got[i].Runs, want)
		}
	}
	for _, bad := range []string{"", "A,B\n", "TIMESTAMP\nsoon\n", "TIMESTAMP\n2023-11-16 18:15:46\n2023-11-16 18:15:45\n", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,-1,2\n", "TIMESTAMP,ContextTokens\n2023-11-16 18:15:46,1\n", "TIMESTAMP\n"} {
		if err := os.WriteFile(file, []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadArrivals(file); err == nil || !strings.Contains(err.Error(), "trace.csv") {
			t.Errorf("%q: error %v", bad, err)
		}
	}
}

// The fewest requests that run each phase a whole number of times.
func TestBatch(t *testing.T) {
	for want, runs := range map[int][]float64{128: {0.25, 129.0 / 128}, 1: {28}, 3: {1.0 / 3}, 0: {math.Pi}} {
		p := &Profile{}
		for _, x := range runs {
			p.Phases = append(p.Phases, Phase{Runs: x})
		}
		if got := p.Batch(); got != want {
			t.Errorf("runs %v: batch %d, want %d", runs, got, want)
		}
	}
}

// Random arrivals have the rate that was requested, and are the same for the same seed.
func TestPoisson(t *testing.T) {
	a := Poisson(20_000, 50, 7)
	if seconds := float64(a[len(a)-1].At) / 1e9; seconds < 390 || seconds > 410 {
		t.Errorf("20000 requests at 50 a second take %g s", seconds)
	}
	if b := Poisson(20_000, 50, 7); a[19_999] != b[19_999] {
		t.Error("the same seed gives other times")
	}
}

// Percentiles are by nearest rank.
func TestPercentiles(t *testing.T) {
	var times []pipeline.Time
	for i := range 10 {
		times = append(times, pipeline.Time(10-i)*1e6)
	}
	if got, want := percentiles(times), (Percentiles{5.5, 5, 9, 10, 10}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
