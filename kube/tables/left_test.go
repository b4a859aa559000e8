package tables

import (
	"math"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/translate"
)

// Pods of other schedulers that are put on a node may request more, in sum, than an int64 holds: nothing is left then.
func TestLeftBesideOthers(t *testing.T) {
	one := translate.Amounts{CPUMilli: core.MaxAmount, MemMiB: core.MaxAmount, Others: []core.Amount{{Name: "x", Value: core.MaxAmount}}}
	for _, pods := range []int64{1, 1<<15 - 1, 1 << 15, 1<<15 + 1, 1<<15 + 2} {
		var taken translate.Amounts
		taken.Add(&one, pods)
		if taken.CPUMilli < 0 != (pods >= 1<<15) {
			t.Fatalf("%d pods take %d", pods, taken.CPUMilli)
		}
		if cpu, mem := LeftOf(8000, taken.CPUMilli), LeftOf(1024, taken.MemMiB); cpu != 0 || mem != 0 {
			t.Errorf("beside %d pods, %d and %d are left", pods, cpu, mem)
		}
		if left := translate.Left([]core.Amount{{Name: "x", Value: 4}}, taken.Others); len(left) > 0 {
			t.Errorf("beside %d pods, %v is left", pods, left)
		}
	}
	if got := LeftOf(8000, 3000); got != 5000 {
		t.Errorf("%d are left", got)
	}
	if got := LeftOf(math.MaxInt64, 0); got != math.MaxInt64 {
		t.Errorf("%d are left", got)
	}
}
