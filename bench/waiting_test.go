package bench

import "testing"

// Runs of a benchmark on one cluster make the same decisions: its sum over them says whether a change alters any.
func TestWaitingRepeats(t *testing.T) {
	var sums [2]string
	for i := range sums {
		m, err := waiting(asItIs)(100)
		if err != nil {
			t.Fatal(err)
		}
		sums[i] = m.notes
	}
	if sums[0] != sums[1] || sums[0] == "" {
		t.Errorf("two runs decided otherwise: %s, %s", sums[0], sums[1])
	}
}
