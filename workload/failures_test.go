package workload

import (
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
)

func readFailureText(text string) ([]FailureKind, error) {
	t, err := newTable("f", strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	return readFailures(t)
}

func TestFailureKinds(t *testing.T) {
	const header = "class,gpu_hours,stays,again_s,restarts,node\n"
	got, err := readFailureText(header + "infrastructure/gpu,5000,0.5,600,3,test\nuser_script/software,900,0,0,0,nothing\n")
	if err != nil {
		t.Fatal(err)
	}
	want := FailureKind{Class: "infrastructure/gpu", GPUHours: 5000, Stays: 0.5, Again: 600 * core.Second, Remedy: core.Remedy{Restarts: 3, Node: core.TestNode}}
	if len(got) != 2 || got[0] != want {
		t.Errorf("read %+v", got)
	}
	for _, bad := range []struct{ text, want string }{
		{header, `f: at least one kind of failure, found none`},
		{"class\nx\n", `f:1: gpu_hours: this column, as all of class, gpu_hours, stays, again_s, restarts, node`},
		{header + "a,0,0,0,0,nothing\n", `f:2: gpu_hours: a whole number 1..1000000000000, found "0"`},
		{header + "a,5,0.5,0,0,nothing\n", `f:2: again_s: a time above 0, as the fault may stay on its node, found "0"`},
		{header + "a,5,0,0,0,burn\n", `f:2: node: one of nothing, strike, test, cordon, found "burn"`},
		{header + "a,5,0,0,0,test\na,5,0,0,0,test\n", `f:3: class: each class once, found "a"`},
	} {
		if _, err := readFailureText(bad.text); err == nil || err.Error() != bad.want {
			t.Errorf("%q: %v, want %s", bad.text, err, bad.want)
		}
	}
}
