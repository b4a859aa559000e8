package main

import (
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

func TestVirtualTimeIsCoarse(t *testing.T) {
	for got, want := range map[string]string{
		coarse(3661 * core.Second):    "1h1m1s",
		coarse(200_000 * core.Second): "2d7h",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
