//go:build linux

package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/gpu/gputest"
)

// handOver is A4: the time in which a process hands its memory over, by how much that is, and whether another process reads the same there.
func handOver(r *report, n *gputest.Node, share float64) {
	const blocks = 8
	c := calls(n)
	defer c.Close()
	if _, err := c.GPUs(r.t.Context()); err != nil { // it starts the driver, which takes seconds, once
		r.t.Fatal(err)
	}
	p := n.Start(r.t)
	defer p.Kill()
	all := min(number(r.t, p.Do("left"), 1)*share, 16<<30)
	block := int(all/blocks) / (2 * mib) * (2 * mib)
	var times []float64
	same := true
	for i := range blocks {
		p.Do("alloc %d", block)
		if i != 0 && i != blocks-1 {
			continue
		}
		want := p.Do("sum %d %d", i, min(block, 64*mib))
		var over, back []float64
		for range 5 {
			b := &checkpoint.Shim{Dir: n.Dir, Lease: 2 * long, Ghost: c}
			began := time.Now()
			if err := toPause(b, []int{p.PID}); err != nil {
				r.t.Logf("A4: %v", err)
				r.judge("A4", "a process hands its memory over", 0, "", "1", false)
				b.Close()
				return
			}
			over = append(over, time.Since(began).Seconds()*1e3)
			if len(over) == 5 { // the ghost reads it
				if err := b.Copy(r.t.Context(), []int{p.PID}); err != nil {
					r.t.Fatal(err)
				}
			}
			began = time.Now()
			if err := toResume(b, []int{p.PID}); err != nil {
				r.t.Fatal(err)
			}
			back = append(back, time.Since(began).Seconds()*1e3)
			b.Close()
			same = same && p.Do("sum %d %d", i, min(block, 64*mib)) == want
		}
		slices.Sort(over)
		times = append(times, over[2])
		r.record("A4", fmt.Sprintf("hand-over of %d MiB", (i+1)*block/mib), over[2], "ms")
		r.record("A4", "and back, without a copy", slices.Sorted(slices.Values(back[:4]))[2], "ms")
	}
	r.judge("A4", "hand-over of the most", times[1], "ms", "< 50", times[1] < 50)
	r.judge("A4", fmt.Sprintf("what %d times as much memory adds", blocks), times[1]-times[0], "ms", "< 10", times[1]-times[0] < 10)
	r.judge("A4", "another process reads the same, and so does this one", truth(same), "", "1", same)
}
