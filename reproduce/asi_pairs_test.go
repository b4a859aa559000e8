package reproduce

import (
	"context"
	"testing"
)

// Jobs that list what each pair is worth at each distance serve as much for the price as jobs that look at the models alone (within half a
// percent: one seed) or at the distance alone, or more; and two alike are always next to each other.
func TestPairsByWorth(t *testing.T) {
	if testing.Short() {
		t.Skip("plans 90 pairs and places 40,000 jobs: some seconds")
	}
	r, err := runASIPairs(context.Background(), Options{Seeds: []int64{0}})
	if err != nil {
		t.Fatal(err)
	}
	ours := map[string]float64{}
	for _, row := range r.(*Table).Rows {
		ours[row.Figure] = row.Ours
	}
	for _, load := range []string{"50 % held, ", "100 % held, "} {
		best := ours[load+pairChoices[3].name+": served for the price"]
		for _, c := range pairChoices[:3] {
			if served := ours[load+c.name+": served for the price"]; served <= 0 || served > 1.005*best {
				t.Errorf("%s%s serves %g for the price, by worth %g", load, c.name, served, best)
			}
		}
		if near := ours[load+"two alike: in one leaf group"]; near < 99 {
			t.Errorf("%s%g %% of pairs of two alike are in one leaf group", load, near)
		}
	}
}
