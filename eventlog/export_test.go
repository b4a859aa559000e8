package eventlog

import (
	"errors"
	"os"
	"time"

	"github.com/muster-sched/muster/core"
)

// Manual returns a writer that writes when turn is called, which returns when
// the disk is done.
func Manual(c Config) (w *Writer, turn func(), err error) {
	w, err = newWriter(c, 24*time.Hour)
	return w, func() { w.sync() }, err
}

// FailSync has the disk fail to make files durable while the function returns an error.
func FailSync(w *Writer, fails func() error) {
	w.disk.sync = func(f *os.File) error { return errors.Join(fails(), f.Sync()) }
}

// sync makes w write what it was told.
func (w *Writer) sync() {
	done := make(chan struct{})
	w.asked <- done
	<-done
}

// Turning is w, made to write after every so many calls.
func Turning(w *Writer, every int) *Turns { return &Turns{w: w, every: every} }

// Turns writes after every so many calls.
type Turns struct {
	w           *Writer
	every, call int
}

func (t *Turns) turn() {
	if t.call++; t.call%t.every == 0 {
		t.w.sync()
	}
}

func (t *Turns) Began(now core.Time, c core.Config) { t.w.Began(now, c); t.turn() }

func (t *Turns) Told(now core.Time, ev core.Event) { t.w.Told(now, ev); t.turn() }

func (t *Turns) Decided(now core.Time, ds []core.Decision, e core.Counter) {
	t.w.Decided(now, ds, e)
	t.turn()
}
