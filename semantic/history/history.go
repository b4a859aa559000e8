// Package history keeps what is known of finished jobs, and finds those that are like a job that is submitted (SchedMate, §3.1
// and §4.3). A history is a SQLite file, a PostgreSQL database or a Redis server; the same questions have the same answers in
// all of them.
package history

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/muster-sched/muster/semantic/embed"
)

// Query asks for jobs that are like one. Only jobs that had ended when it was submitted are found, so that an evaluation on
// old jobs knows no more than was known then.
type Query struct {
	Job       Job
	K         int     // how many are found at most
	Threshold float64 // the least cosine
	Shared    bool    // jobs of other tenants are found, too
}

// Match is a job that was found.
type Match struct {
	Job   Job
	Score float64 // the cosine, at most 1
	Same  bool    // it is an earlier run of the same job: see [History.Similar]
}

// record is a job as a journal keeps it.
type record struct {
	job      Job
	embedder string
	vector   []byte // see encode
}

// journal is where records are kept: in the order in which they were appended, by several processes at a time.
type journal interface {
	// append adds records, in place of older ones of the same jobs. When it returns without an error, they are durable.
	append(ctx context.Context, records []record) error
	// read yields the records that were appended after a place, "" for the beginning, and returns the place after the last.
	read(ctx context.Context, after string, yield func(record)) (string, error)
	// keep removes the jobs that ended first, until n are left.
	keep(ctx context.Context, n int) error
	close() error
}

// History is finished jobs. Its methods can be called by several goroutines.
type History struct {
	journal  journal
	embedder embed.Embedder
	most     int

	mu       sync.Mutex
	index    *index
	place    string // up to where the index has read the journal
	appended int    // since the journal was last reduced, as far as this process knows
}

// Options of a history.
type Options struct {
	// Embedder makes the vectors; nil: [embed.Hashing].
	Embedder embed.Embedder
	// Most bounds the jobs: up to a tenth more are kept, then those that ended first are removed until Most are left; 0: a
	// million.
	Most int
	// Existing refuses a file that is not there or empty, with an error that is [fs.ErrNotExist].
	Existing bool
}

// Open opens a history: that of a postgres:// or redis:// URL (rediss:// with TLS), the file of a SQLite database, which the
// first job creates if there is none, or "memory:", which is empty and forgotten on Close.
func Open(ctx context.Context, where string, o Options) (*History, error) {
	if o.Embedder == nil {
		o.Embedder = embed.Hashing{}
	}
	if o.Most == 0 {
		o.Most = 1_000_000
	}
	if o.Most < 0 {
		return nil, fmt.Errorf("a history keeps at least 1 job; found %d", o.Most)
	}
	var (
		j   journal
		err error
	)
	scheme, _, hasScheme := strings.Cut(where, "://")
	switch {
	case where == "":
		err = fmt.Errorf("expected the file or URL of a history; found nothing")
	case where == "memory:":
		j = &memory{}
	case scheme == "postgres", scheme == "postgresql":
		j, err = openPostgres(ctx, where)
	case scheme == "redis", scheme == "rediss":
		j, err = openRedis(ctx, where)
	case hasScheme:
		err = fmt.Errorf("expected a file, or a URL of postgres:// or redis://; found the scheme %q", scheme)
	default:
		j, err = openSQLite(ctx, where, o.Existing)
	}
	if err != nil {
		return nil, err
	}
	return &History{journal: j, embedder: o.Embedder, most: o.Most, index: newIndex()}, nil
}

// Close closes the history.
func (h *History) Close() error { return h.journal.close() }

// Append adds jobs that have ended, in place of older ones with their IDs. When it returns without an error, none of them
// gets lost, also if the process or the machine fails.
func (h *History) Append(ctx context.Context, jobs ...Job) error {
	if len(jobs) == 0 {
		return nil
	}
	docs := make([][]embed.Field, len(jobs))
	for i := range jobs {
		if err := jobs[i].Check(); err != nil {
			return fmt.Errorf("history: %w", err)
		}
		docs[i] = jobs[i].Fields()
	}
	vectors, err := h.embedder.Embed(ctx, docs)
	if err == nil && len(vectors) != len(jobs) {
		err = fmt.Errorf("%d vectors for %d jobs", len(vectors), len(jobs))
	}
	if err != nil {
		return fmt.Errorf("history: %s: %w", h.embedder.ID(), err)
	}
	records := make([]record, len(jobs))
	for i := range jobs {
		records[i] = record{jobs[i].utc(), h.embedder.ID(), encode(vectors[i])}
		if err := valid(records[i].vector); err != nil { // what is read is checked, too: one such record would close the history for all
			return fmt.Errorf("history: %s: job %s: %w", h.embedder.ID(), jobs[i].ID, err)
		}
	}
	if err := h.journal.append(ctx, records); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return h.reduce(ctx, len(jobs))
}

// utc returns the job with times as they are kept: in UTC, without a monotonic clock.
func (j Job) utc() Job {
	for _, t := range []*time.Time{&j.Submit, &j.Start, &j.End} {
		*t = t.Round(0).UTC()
	}
	return j
}

// reduce bounds the journal, now and then.
func (h *History) reduce(ctx context.Context, added int) error {
	h.mu.Lock()
	h.appended += added
	due := h.appended > h.most/10
	if due {
		h.appended = 0
	}
	h.mu.Unlock()
	if !due {
		return nil
	}
	if err := h.journal.keep(ctx, h.most); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return nil
}

// refresh reads what was appended since the last time, here or by another process. h.mu is held.
func (h *History) refresh(ctx context.Context) error {
	place, err := h.journal.read(ctx, h.place, func(r record) { h.index.add(h.local(r)) })
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	h.place = place
	if h.index.keep(h.most) {
		h.appended = h.most // by processes that each added too few to notice: the next job that is added here reduces the journal
	}
	return nil
}

// local returns a record with a vector that [embed.Hashing] compares, if that is what the history is opened with: it costs nothing, so that jobs
// which were added by an embedding model are found without it.
func (h *History) local(r record) record {
	if hashing, ok := h.embedder.(embed.Hashing); ok && r.embedder != hashing.ID() {
		vectors, _ := hashing.Embed(context.Background(), [][]embed.Field{r.job.Fields()})
		r.embedder, r.vector = hashing.ID(), encode(vectors[0])
	}
	return r
}

// Similar returns the jobs that are most like the query's, best first; none is an answer. If there are earlier runs of the same job
// (of its tenant and user, with its name but for numbers in it, its command, GPUs and model), it returns the last of them. Else it
// returns those with the highest cosine. Only jobs that completed are found.
func (h *History) Similar(ctx context.Context, q Query) ([]Match, error) {
	if q.K < 1 {
		return nil, fmt.Errorf("history: expected at least 1 job to find; found %d", q.K)
	}
	vectors, err := h.embedder.Embed(ctx, [][]embed.Field{q.Job.Fields()})
	if err == nil && len(vectors) != 1 {
		err = fmt.Errorf("%d vectors for 1 job", len(vectors))
	}
	if err != nil {
		return nil, fmt.Errorf("history: %s: %w", h.embedder.ID(), err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.refresh(ctx); err != nil {
		return nil, err
	}
	return h.index.similar(&q, h.embedder.ID(), h.embedder.Weighed(), vectors[0]), nil
}

// Jobs returns all jobs in the order of their ends.
func (h *History) Jobs(ctx context.Context) ([]Job, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.refresh(ctx); err != nil {
		return nil, err
	}
	var jobs []Job
	for _, e := range h.index.sorted() {
		jobs = append(jobs, e.Job)
	}
	return jobs, nil
}
