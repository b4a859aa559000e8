package main

import (
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
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
