package kube

import (
	"context"
	"testing"

	"github.com/muster-sched/muster/kube/lease"
)

// Of instances that share a cluster, the holder of the rest tells how all stands, the
// others why their own jobs wait.
func TestToldByTheHolderOfTheRest(t *testing.T) {
	y := newShown(t)
	y.node("a", 8)
	if err := y.Take(0); err != nil {
		t.Fatal(err)
	}
	y.see(podOf("x", 9))
	y.Decide(1e9)
	y.Acts()
	y.At(3e9)
	y.Explain(10)
	l := newTenure(t, []string{"H800", "*"})
	ctx, end := context.WithCancel(context.Background())
	defer end()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-l.box.Ready:
				for _, f := range l.box.Take(nil) {
					f(y.Mirror)
				}
			}
		}
	}()
	for _, rest := range []bool{false, true} {
		l.held[lease.RestOf(l.config.Shards)].Store(rest)
		st, err := l.ownStats(ctx)
		if whole := len(st.Models) == 1 && len(st.Queues) > 0; err != nil || whole != rest || len(st.Reasons) != 1 {
			t.Errorf("held %t: it tells %+v, %v", rest, st, err)
		}
	}
}
