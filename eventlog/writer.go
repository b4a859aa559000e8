package eventlog

import (
	"bytes"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/muster-sched/muster/core"
)

// Config is the configuration of a writer.
type Config struct {
	// Dir is the folder of the files. It is created if necessary.
	Dir string
	// The writer begins another file when a file has MaxBytes, compressed (64 MiB if 0),
	// or is MaxAge old (a day if 0).
	MaxBytes int64
	MaxAge   time.Duration
	// MaxFiles is the maximum number of files (100 if 0): the writer removes the oldest
	// file for the newest.
	MaxFiles int
	// Log reports when recording stops and continues; may be nil.
	Log *slog.Logger
	// Now is the clock, time.Now when nil.
	Now func() time.Time
}

const (
	flushEvery = 500 * time.Millisecond
	retryEvery = 10 * time.Second
	chunkSize  = 1 << 20 // compressed bytes that are handed on at once
	mostSpare  = 1 << 16 // items for which memory is kept
	// closeWithin is the maximum time that Close waits for a disk.
	closeWithin = 5 * time.Second
)

// Writer records the events and decisions of an engine. Its methods cost the caller
// almost nothing: another goroutine encodes, compresses and writes the lines, at most a
// second later. If a write fails, recording stops and is retried every ten seconds; no
// caller waits for it.
//
// The caller reports everything, in order and from one goroutine: Began, then Told and
// Decided. It must not change the events that it passes; decisions are copied.
//
// If the policy counts GPU time or has recovery, another file begins with what the engine has counted and decided about failures, after a pass.
type Writer struct {
	config Config
	mu     sync.Mutex
	queue  []item
	full   atomic.Bool        // another file is to begin after the next pass, with what the engine has counted
	asked  chan chan struct{} // to write what was told, now; for tests
	stop   chan struct{}
	done   chan struct{}
	err    error // of Close

	// Only the goroutine that writes lines uses the fields below.

	spare  []item // memory for the queue
	tables *Tables
	header Header
	disk   *disk
	open   bool // there is a file, and it is whole so far
	opened time.Time
	now    core.Time    // of what was told last
	size   int64        // handed on
	enough int64        // the size at which another file begins
	buffer bytes.Buffer // compressed and not handed on
	zip    *gzip.Writer
	dirty  bool // zip has something
	line   []byte
	broken atomic.Bool // recording has stopped, and people were told
	retry  time.Time
}

// item is one call of the caller.
type item struct {
	now     core.Time
	begin   *core.Config
	event   core.Event // of none of these: a pass
	goesOn  *goesOn
	decided []core.Decision
}

// NewWriter starts a writer; Close stops it. It returns an error if the folder cannot be
// created or written.
func NewWriter(c Config) (*Writer, error) { return newWriter(c, flushEvery) }

// newWriter returns a writer that writes at this interval.
func newWriter(c Config, every time.Duration) (*Writer, error) {
	if c.MaxBytes == 0 {
		c.MaxBytes = 64 << 20
	}
	if c.MaxAge == 0 {
		c.MaxAge = 24 * time.Hour
	}
	if c.MaxFiles == 0 {
		c.MaxFiles = 100
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if err := makeFolder(c.Dir); err != nil {
		return nil, err
	}
	w := &Writer{
		config: c, asked: make(chan chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
		tables: NewTables(), disk: newDisk(c.Dir, c.MaxFiles),
	}
	w.zip, _ = gzip.NewWriterLevel(&w.buffer, gzip.BestSpeed) // the level is valid: there is no error
	go w.work(every)
	return w, nil
}

// Began records that an empty engine starts.
func (w *Writer) Began(now core.Time, c core.Config) { w.put(item{now: now, begin: &c}) }

// Told records an event that the engine received.
func (w *Writer) Told(now core.Time, ev core.Event) { w.put(item{now: now, event: ev}) }

// Decided records a pass of the engine and its decisions, if any.
func (w *Writer) Decided(now core.Time, ds []core.Decision, e core.Counter) {
	pods := 0
	for i := range ds {
		pods += len(ds[i].Pods)
	}
	all := make([]core.Placement, 0, pods)
	ds = slices.Clone(ds)
	for i := range ds {
		all = append(all, ds[i].Pods...)
		ds[i].Pods = all[len(all)-len(ds[i].Pods):]
	}
	w.put(item{now: now, decided: ds})
	if w.full.CompareAndSwap(true, false) {
		w.put(item{now: now, goesOn: &goesOn{e.Counted(now), e.Failures()}})
	}
}

func (w *Writer) put(i item) {
	w.mu.Lock()
	w.queue = append(w.queue, i)
	w.mu.Unlock()
}

// Close writes what is left. If the last entries are not on the disk, it returns the last
// error.
func (w *Writer) Close() error {
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	<-w.done
	return w.err
}

// work writes lines until Close.
func (w *Writer) work(every time.Duration) {
	defer close(w.done)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.turn()
			w.rotate()
		case done := <-w.asked:
			w.turn()
			w.rotate()
			w.disk.wait()
			close(done)
		case <-w.stop:
			w.turn()
			w.finish()
			w.err = w.disk.close()
			return
		}
	}
}

// turn writes the calls since the last turn.
func (w *Writer) turn() {
	w.mu.Lock()
	list := w.queue
	w.queue = w.spare[:0]
	w.mu.Unlock()
	for i := range list {
		w.take(&list[i])
	}
	clear(list)
	if w.spare = list; cap(list) > mostSpare {
		w.spare = nil
	}
	if w.dirty && w.open {
		w.zip.Flush()
		w.hand()
	}
}

// take writes one call.
func (w *Writer) take(i *item) {
	w.now = i.now
	if i.goesOn != nil {
		w.finish()
		w.begin(i.goesOn)
		return
	}
	e := Entry{Now: i.now, Event: i.event, Pass: i.event == nil, Decided: i.decided}
	if i.begin != nil {
		e = Entry{Now: i.now, Begin: &w.header}
		w.finish()
		w.header = Header{Version: Version, Engine: i.now, Policy: i.begin.Policy, Levels: i.begin.Levels}
	}
	if err := w.tables.Take(&e); err != nil {
		// The tables must accept every event that the engine accepted; if they do not,
		// the next snapshot may lack it.
		w.config.Log.Error("the event log's tables refused an entry", "error", err)
	}
	switch {
	case i.begin != nil:
		w.begin(nil)
	case w.open:
		w.write(&e)
	}
}

// goesOn is what an engine that reads a file from its beginning has to know beside the state.
type goesOn struct {
	counted  core.GPUTimeCounted
	failures core.FailuresFound
}

// begin begins a file with a snapshot of the state, and what the engine has counted and decided about failures, if anything.
func (w *Writer) begin(is *goesOn) {
	snapshot := w.tables.Snapshot(w.now)
	if is != nil && len(is.counted.Queues)+len(is.counted.Jobs) > 0 {
		snapshot = append(snapshot, Entry{Now: w.now, Event: is.counted, Restored: true})
	}
	if is != nil && len(is.failures.Nodes)+len(is.failures.Jobs) > 0 {
		snapshot = append(snapshot, Entry{Now: w.now, Event: is.failures, Restored: true})
	}
	w.header.Part++
	w.header.Snapshot = len(snapshot)
	w.buffer.Reset()
	w.zip.Reset(&w.buffer)
	w.opened, w.size, w.open = w.config.Now(), 0, w.disk.create()
	if !w.open {
		w.fail()
		return
	}
	w.add(appendHeader(w.line[:0], w.now, &w.header))
	w.header.Gap = false
	for i := range snapshot {
		w.write(&snapshot[i])
	}
	w.zip.Flush()
	w.hand()
	w.enough = max(w.config.MaxBytes, 2*w.size) // a file is not all snapshot
}

// write adds the line of an event or a pass.
func (w *Writer) write(e *Entry) {
	if e.Pass {
		w.add(appendPass(w.line[:0], e.Now, e.Decided))
		return
	}
	w.add(appendEvent(w.line[:0], e.Now, e.Event))
}

func (w *Writer) add(line []byte) {
	w.line = line
	w.zip.Write(line) // to memory: there is no error
	w.dirty = true
	if w.buffer.Len() >= chunkSize {
		w.hand()
	}
}

// hand passes compressed data to the disk.
func (w *Writer) hand() {
	w.dirty = false
	if w.buffer.Len() == 0 || !w.open {
		return
	}
	w.size += int64(w.buffer.Len())
	if !w.disk.write(bytes.Clone(w.buffer.Bytes())) {
		w.fail()
	}
	w.buffer.Reset()
}

// finish ends the file, if there is one.
func (w *Writer) finish() {
	if w.open {
		w.zip.Close() // to memory: there is no error
		w.hand()
	}
	if w.open && !w.disk.end() {
		w.fail()
	}
	w.open = false
}

// Recording reports whether what happens is written: false from when it could not be until it is again.
func (w *Writer) Recording() bool { return !w.broken.Load() }

// fail records that the file cannot be continued.
func (w *Writer) fail() {
	w.open, w.header.Gap = false, true
	w.retry = w.config.Now().Add(retryEvery)
	if !w.broken.Swap(true) {
		w.config.Log.Error("events are no longer recorded; retrying", "folder", w.config.Dir, "error", w.disk.error(), "every", retryEvery)
	}
}

// rotate begins another file if the present one is full or old enough.
func (w *Writer) rotate() {
	now := w.config.Now()
	if w.open && w.disk.failed() {
		w.fail()
	}
	switch {
	case w.header.Version == 0: // no engine has begun
	case !w.open && !now.Before(w.retry):
		w.another()
	case w.open && w.broken.Load() && w.disk.idle():
		w.config.Log.Info("events are recorded again", "folder", w.config.Dir)
		w.broken.Store(false)
	case w.open && (w.size >= w.enough || now.Sub(w.opened) >= w.config.MaxAge):
		w.another()
	}
}

// another begins another file, after the next pass if there is something to ask the engine.
func (w *Writer) another() {
	if p := &w.header.Policy; p.CountsGPUTime() || p.Recovery.Mode != core.NoRecovery {
		w.full.Store(true)
		return
	}
	w.finish()
	w.begin(nil)
}
