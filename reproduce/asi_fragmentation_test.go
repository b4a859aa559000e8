package reproduce

import (
	"context"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core/frag"
)

// A cause dominates with more than half of what a shape cannot use. What is not so is a NO.
func TestCauseRows(t *testing.T) {
	shapes := frag.PaperShapes()
	splits := make([]frag.Split, len(shapes))
	for k := range splits {
		splits[k] = frag.Split{frag.Allocatable: 900, frag.Fractional: 1, frag.Stranded: 60, frag.CPU: 39}
	}
	within := map[string]bool{}
	for _, r := range causeRows(shapes, splits) {
		if r.judged() {
			within[strings.SplitN(r.Figure, ",", 2)[0]] = r.Within
		}
	}
	for name, want := range map[string]bool{
		"1G8C: insufficient CPU": false, "8G128C: insufficient CPU": false,
		"4G32C: stranded": true, "4G64C: stranded": true, "8G64C: stranded": true, "fractional": true,
	} {
		if got, ok := within[name]; !ok || got != want || len(within) != 6 {
			t.Errorf("%s: %v, want %v, of %v", name, got, want, within)
		}
	}
}

// All claims hold but one, which the inputs decide.
func TestASIFragmentation(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a day of asi")
	}
	r, err := asiFragmentation.Run(context.Background(), Options{Seeds: []int64{1}})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.(*Table).Rows {
		if row.Within == strings.HasPrefix(row.Figure, "8G128C: insufficient") {
			t.Errorf("%s is %v %s", row.Figure, row.Ours, row.Unit)
		}
	}
}
