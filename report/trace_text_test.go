package report

import (
	"strings"
	"testing"

	"github.com/muster-sched/muster/workload"
)

func TestNumbersAreWrittenForPeople(t *testing.T) {
	for got, want := range map[string]string{
		Thousands(0):       "0",
		Thousands(999):     "999",
		Thousands(1234567): "1,234,567",
		Seconds(0.25):      "0.25s",
		Seconds(90.5):      "1m30s",
		Seconds(200_000):   "2d7h33m20s",
		blocks(0, 20):      "",
		blocks(0.05, 20):   "█",
		blocks(0.025, 20):  "▌",
		blocks(1, 20):      strings.Repeat("█", 20),
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
