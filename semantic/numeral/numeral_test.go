package numeral

import (
	"slices"
	"testing"
)

func TestIn(t *testing.T) {
	for text, want := range map[string][]float64{
		"80000": {80000}, "80_000": {80000}, "80,000": {80000}, "8e4": {80000}, "80k": {80000}, "1e-3, 0.5": {0.001, 0.5}, "300B": {3e11}, "none": nil, "(1,2)": {1, 2}, "-5": {5}, "250ms, 7 m": {250, 7}, "10m": {1e7}, "1e999": nil,
	} {
		if got := In(text); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	if !Has([]float64{0.1 + 0.2}, 0.3) || Has([]float64{1}, 1.001) || Has(nil, 0) {
		t.Error("numbers are the same up to their last digits")
	}
}
