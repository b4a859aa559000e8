package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/internal/table"
	"github.com/muster-sched/muster/report"
)

// progress shows on stderr how far runs are: a bar on a terminal, a line every
// few seconds elsewhere. Its methods may be called from several goroutines.
type progress struct {
	mu   sync.Mutex
	out  io.Writer
	bar  *progressbar.ProgressBar // nil elsewhere
	next time.Time
	runs []steps
	// total is how many jobs all runs have together; 0 while it is not known.
	total int
}

// steps is how far one run is.
type steps struct {
	now              core.Time
	submitted, ended int
}

const (
	barEvery  = 100 * time.Millisecond
	lineEvery = 5 * time.Second
)

func newProgress(out io.Writer, runs int) *progress {
	p := &progress{out: out, runs: make([]steps, runs), next: time.Now().Add(lineEvery)}
	if f, ok := table.Raw(out).(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.next = time.Now()
		p.bar = progressbar.NewOptions(-1,
			progressbar.OptionSetWriter(f),
			progressbar.OptionSetDescription("replaying"),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionFullWidth(),
			progressbar.OptionClearOnFinish(),
		)
	}
	return p
}

// onTerminal reports whether there is a bar, which wants to know the total.
func (p *progress) onTerminal() bool { return p.bar != nil }

// expect tells how many jobs each run has.
func (p *progress) expect(jobs int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total = jobs * len(p.runs)
}

// of returns the function that takes the news of the i-th run.
func (p *progress) of(i int) func(now core.Time, submitted, ended int) {
	return func(now core.Time, submitted, ended int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.runs[i] = steps{now, submitted, ended}
		if t := time.Now(); t.After(p.next) {
			p.show(t)
		}
	}
}

func (p *progress) show(t time.Time) {
	var sum steps
	for _, s := range p.runs {
		sum.now = max(sum.now, s.now)
		sum.submitted += s.submitted
		sum.ended += s.ended
	}
	text := fmt.Sprintf("%s of virtual time, %s of %s jobs ended", coarse(sum.now), report.Thousands(sum.ended), report.Thousands(sum.submitted))
	if p.bar == nil {
		p.next = t.Add(lineEvery)
		fmt.Fprintln(p.out, "muster: "+text)
		return
	}
	p.next = t.Add(barEvery)
	p.bar.Describe(text)
	if p.total > 0 {
		// A job is half done when it is submitted, for its end takes work too.
		p.bar.ChangeMax(2 * p.total)
		_ = p.bar.Set(min(sum.submitted+sum.ended, 2*p.total-1))
	}
}

// coarse writes a time to the hour from a day on, else to the second.
func coarse(t core.Time) string {
	const hour = 3600 * core.Second
	if t >= 24*hour {
		return v1alpha1.Duration(t - t%hour).String()
	}
	return v1alpha1.Duration(t - t%core.Second).String()
}

// finish removes the bar.
func (p *progress) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
