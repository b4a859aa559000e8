package v1alpha1_test

import (
	"testing"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
)

func TestDuration(t *testing.T) {
	tests := []struct {
		text    string
		want    core.Time
		written string
	}{
		{"0", 0, "0s"},
		{"90", 90 * core.Second, "1m30s"},
		{"0.25", core.Second / 4, "250ms"},
		{"250ms", core.Second / 4, "250ms"},
		{"1h30m", 5400 * core.Second, "1h30m"},
		{"1.5d", 36 * 3600 * core.Second, "1d12h"},
		{"7d", 7 * 86400 * core.Second, "7d"},
	}
	for _, test := range tests {
		var d v1alpha1.Duration
		if err := d.UnmarshalText([]byte(test.text)); err != nil || core.Time(d) != test.want {
			t.Errorf("%s: %d, %v", test.text, d, err)
		}
		if got := d.String(); got != test.written {
			t.Errorf("%s is written %s, want %s", test.text, got, test.written)
		}
	}
	for _, text := range []string{"", "-1", "1x", "h", "5 m", "1e3", "1e999999999", "1/2", "9999999999d", "0.0000000001", "1.2.3", "3m5"} {
		var d v1alpha1.Duration
		if d.UnmarshalText([]byte(text)) == nil {
			t.Errorf("%q was read as %s", text, d)
		}
	}
}

func TestGPUs(t *testing.T) {
	for text, want := range map[string]core.Milli{"0": 0, "-1": core.Milli(v1alpha1.NoLimit), "8": 8000, "0.5": 500, "1.250": 1250} {
		var g v1alpha1.GPUs
		if err := g.UnmarshalText([]byte(text)); err != nil || core.Milli(g) != want {
			t.Errorf("%s: %d, %v", text, g, err)
		}
	}
	for _, text := range []string{"", "-2", "-1.5", "0.0001", "1e3", "99999999999", "all"} {
		var g v1alpha1.GPUs
		if g.UnmarshalText([]byte(text)) == nil {
			t.Errorf("%q was read as %s", text, g)
		}
	}
}
