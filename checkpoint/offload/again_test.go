package offload_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/checkpoint/offload"
	"github.com/muster-sched/muster/gpu/gputest"
)

// loses is a store from which another program removes what an image has in common with the one before, once that was found.
type loses struct{ image.Dir }

func (l loses) Has(ctx context.Context, object string) (bool, error) {
	if strings.HasPrefix(object, "regions/") {
		if err := l.Delete(ctx, object); err != nil {
			return false, err
		}
	}
	return l.Dir.Has(ctx, object)
}

// A checkpoint of a process of which the store has most stores the rest. If what it found there is gone before it is verified, the
// process goes on with its memory; and so it does after the next one, which stores all again.
func TestCheckpointAgain(t *testing.T) {
	n := gputest.NewNode(t, 64)
	p := n.Start(t)
	p.Do("alloc %d", 8*mib)
	images, dir := store(t)
	checkpoint := func(images *image.Images) (image.Saved, error) {
		return offload.Checkpoint(ctx, n.Dir, time.Minute, images, offload.Job{Name: "again", PIDs: []int{p.PID}, Step: quiet}, once)
	}
	change := func(bytes int) (sum string) {
		p.Send("train 0 %d 10", bytes)
		p.Until("sum ")
		return p.Do("sum 0 %d", 8*mib)
	}
	moved := func(least, most int64, sum string) {
		t.Helper()
		saved, err := checkpoint(images)
		if err != nil {
			t.Fatal(err)
		}
		if saved.Written < least || saved.Written > most {
			t.Errorf("%d bytes are new in the store; want from %d to %d", saved.Written, least, most)
		}
		if err := images.Verify(ctx, saved.Entry); err != nil {
			t.Error(err)
		}
		if err := offload.Resume(ctx, n.Dir, time.Minute, images, []int{p.PID}, time.Minute, quiet); err != nil {
			t.Fatal(err)
		}
		if got := p.Do("sum 0 %d", 8*mib); got != sum {
			t.Errorf("it goes on with %s; it had %s", got, sum)
		}
	}
	moved(8*mib, 9*mib, change(8*mib))
	moved(mib, 2*mib, change(mib))
	sum := change(mib)
	if _, err := checkpoint(&image.Images{Store: loses{dir}}); !errors.Is(err, image.ErrDamaged) || !strings.HasSuffix(err.Error(), "all processes are as before") {
		t.Fatal(err)
	}
	if all, _ := images.List(ctx); len(all) > 0 {
		t.Error(all)
	}
	if got := p.Do("sum 0 %d", 8*mib); got != sum {
		t.Errorf("it goes on with %s; it had %s", got, sum)
	}
	moved(mib/4, 9*mib, sum)
}

// BenchmarkCheckpointAgain is muster checkpoint of a process whose memory the store has from the time before, by the size of the memory
// and by how much of it changed since: all of it, and each step. docs/images.md has the figures.
func BenchmarkCheckpointAgain(b *testing.B) {
	for _, size := range []int{64, 256, 512} {
		n := gputest.NewNode(b, size+64)
		p := n.Start(b)
		p.Do("alloc %d", size*mib)
		images, err := image.Open(ctx, image.Dir(b.TempDir()), nil, true)
		if err != nil {
			b.Fatal(err)
		}
		change := func(percent int) {
			p.Send("train 0 %d 2", size*mib*percent/100/8*8) // to bytes that do not compress
			p.Until("sum ")
		}
		// checkpoint calls step at the begin of each step and at the end.
		checkpoint := func(step func(string, int64)) (stored int64) {
			step("pausing", 0)
			saved, err := offload.Checkpoint(ctx, n.Dir, time.Minute, images, offload.Job{Name: "again", PIDs: []int{p.PID}, Step: step}, once)
			if err != nil {
				b.Fatal(err)
			}
			step("", 0)
			return saved.Written
		}
		resume := func() {
			if err := offload.Resume(ctx, n.Dir, time.Minute, images, []int{p.PID}, time.Minute, quiet); err != nil {
				b.Fatal(err)
			}
		}
		change(100)
		checkpoint(quiet)
		resume()
		for _, percent := range []int{0, 10, 100} {
			b.Run(fmt.Sprintf("size=%dMiB/changed=%d%%", size, percent), func(b *testing.B) {
				stored, now, began := int64(0), "", time.Time{}
				spent := map[string]time.Duration{}
				step := func(next string, _ int64) {
					spent[now] += time.Since(began)
					now, began = next, time.Now()
				}
				for b.Loop() {
					b.StopTimer()
					change(percent)
					b.StartTimer()
					stored += checkpoint(step)
					b.StopTimer()
					resume()
					b.StartTimer()
				}
				for _, s := range []string{"pausing", "saving", "verifying"} {
					b.ReportMetric(float64(spent[s].Milliseconds())/float64(b.N), s+"-ms")
				}
				b.ReportMetric(float64(stored)/float64(b.N)/mib, "stored-MiB")
			})
		}
	}
}
