package workload

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-sched/muster/core"
)

func TestSuspensionsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := core.Suspension{
			Pause:      core.Time(rapid.Int64Range(0, int64(30*24*3600*core.Second)).Draw(t, "pause")),
			Resume:     core.Time(rapid.Int64Range(0, 3600).Draw(t, "resume")) * core.Second,
			HostMemMiB: rapid.Int64Range(1, maxMemMiB).Draw(t, "mem"),
		}
		if got, err := ParseSuspension(suspensionText(s)); err != nil || got != s {
			t.Errorf("%+v is written as %q and read as %+v, %v", s, suspensionText(s), got, err)
		}
	})
	if text := suspensionText(core.Suspension{}); text != "" {
		t.Errorf("no suspension is written as %q", text)
	}
}

func TestSuspensionsThatAreNone(t *testing.T) {
	for _, text := range []string{"5", "5/10", "5/10/0", "5/10/-1", "-5/10/1", "5/x/1", "5/10/1/2", "5/10/1.5", "1e300/1/1", "5s/10s/1", "NaN/1/1", "5/10/99999999999999999999"} {
		if s, err := ParseSuspension(text); err == nil {
			t.Errorf("%q is read as %+v", text, s)
		}
	}
}
