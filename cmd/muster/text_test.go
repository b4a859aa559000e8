package main

import (
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/workload"
)

func TestDidYouMean(t *testing.T) {
	known := []string{"Backfill", "StrictFIFO", "Spread", "ESpread"}
	for written, want := range map[string]string{
		"backfil":    ` (did you mean "Backfill"?)`,
		"strictfifo": ` (did you mean "StrictFIFO"?)`,
		"spraed":     ` (did you mean "Spread"?)`,
		"Kueue":      "",
		"":           "",
	} {
		if got := didYouMean(written, known); got != want {
			t.Errorf("%q: got %q, want %q", written, got, want)
		}
	}
}

func TestNumbersAreWrittenForPeople(t *testing.T) {
	for got, want := range map[string]string{
		thousands(0):                  "0",
		thousands(999):                "999",
		thousands(1234567):            "1,234,567",
		seconds(0.25):                 "0.25s",
		seconds(90.5):                 "1m30s",
		coarse(3661 * core.Second):    "1h1m1s",
		coarse(200_000 * core.Second): "2d7h",
		blocks(0, 20):                 "",
		blocks(0.05, 20):              "█",
		blocks(0.025, 20):             "▌",
		blocks(1, 20):                 strings.Repeat("█", 20),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A box goes from p10 to p90, thick from p25 to p75, on a logarithmic scale.
func TestPlots(t *testing.T) {
	wide := workload.Quantiles{P10: 1, P25: 10, P50: 100, P75: 1000, P90: 1e4, P99: 1e6}
	for got, want := range map[string]string{
		box(&wide, 1, 1e4): "──────▒▒▒▒▒▒█▒▒▒▒▒──────",
		box(&workload.Quantiles{P10: 100, P25: 100, P50: 100, P75: 100, P90: 100}, 1, 1e4): strings.Repeat(" ", 12) + "█",
		box(&workload.Quantiles{P90: 5}, 5, 5):                                             "█",
		sparkline([]float64{0, 0, 0, 4, 4, 4, 8, 8, 8}):                                    " ▄█",
		sparkline(nil):     "",
		brief(90):          "90s",
		brief(5400):        "90m",
		brief(36 * 3600):   "36h",
		brief(2.5 * 86400): "2.5d",
		number(0.25):       "0.2",
		number(99.96):      "100",
		number(1234.5):     "1,235",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
