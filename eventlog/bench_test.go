package eventlog_test

import (
	"fmt"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/eventlog"
)

// BenchmarkHook is what recording costs the caller: an event, and a pass that
// binds a gang of eight pods. The disk is a folder for temporary files.
func BenchmarkHook(b *testing.B) {
	const before = 10_000 // calls, then they are written
	run := func(b *testing.B, call func(w *eventlog.Writer, i int)) {
		w, turn, err := eventlog.Manual(eventlog.Config{Dir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		w.Began(0, core.Config{})
		w.Told(0, core.NodeAdded{Node: core.Node{Name: "n", Model: "H800", GPUs: 8}})
		w.Told(0, core.JobSubmitted{Job: core.Job{Name: "j", Tasks: []core.Task{{Pods: 8}}}})
		for i := 1; b.Loop(); i++ {
			call(w, i)
			if i%before == 0 {
				b.StopTimer()
				turn()
				b.StartTimer()
			}
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("event", func(b *testing.B) {
		var ev core.Event = core.Tick{}
		run(b, func(w *eventlog.Writer, i int) { w.Told(core.Time(i), ev) })
	})
	b.Run("gang", func(b *testing.B) {
		d := []core.Decision{{Op: core.Wake, Job: "j"}} // as large as a Bind
		for i := range 8 {
			d[0].Pods = append(d[0].Pods, core.Placement{Pod: i, Node: "n", GPUs: 1, GPU: 1000})
		}
		run(b, func(w *eventlog.Writer, i int) { w.Decided(core.Time(i), d, nil) })
	})
}

// BenchmarkWriter is what it costs beside: each event of a job of one pod is
// taken in, made a line and compressed.
func BenchmarkWriter(b *testing.B) {
	w, turn, err := eventlog.Manual(eventlog.Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	w.Began(0, core.Config{})
	w.Told(0, core.NodeAdded{Node: core.Node{Name: "n", Model: "H800", GPUs: 8}})
	i := 0
	for ; b.Loop(); i++ {
		name := fmt.Sprintf("default/job/train-%d", i)
		w.Told(core.Time(i), core.JobSubmitted{Job: core.Job{Name: name, Queue: "q", Submitted: core.Time(i), Tasks: []core.Task{{
			Name: "main", Pods: 1, Request: core.Request{GPU: 1000, CPUMilli: 16000, MemMiB: 65536, Models: []string{"H800"}},
		}}}})
		w.Decided(core.Time(i), []core.Decision{{Op: core.Bind, Job: name, Pods: []core.Placement{{Node: "n", GPUs: 1, GPU: 1000, CPUMilli: 16000, MemMiB: 65536}}}}, nil)
		w.Told(core.Time(i), core.JobEnded{Job: name})
		if i%1000 == 0 {
			turn()
		}
	}
	turn()
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
}
