package objects

import "testing"

func TestKeptAmounts(t *testing.T) {
	if a, err := keptAmounts("cpu=500m, memory=2Gi"); err != nil || a.CPUMilli != 500 || a.MemMiB != 2048 {
		t.Errorf("%+v, %v", a, err)
	}
	for _, wrong := range []string{"", "cpu=1", "cpu=-1,memory=1Gi", "cpu=1,cpu=1,memory=1Gi", "cpu=1,memory=1Gi,gpu=1", "cpu=28E474976710,memory=1Gi"} {
		if a, err := keptAmounts(wrong); err == nil {
			t.Errorf("%q: %+v", wrong, a)
		}
	}
}
