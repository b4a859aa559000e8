package lease

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// patience is a transport for reads that gives up those that are not answered: an act that
// waits for what it reads would wait for ever, and its shard with it. A read has the time limit
// in total. A list of a whole cluster, which is read in pages, and a log have it for their headers,
// and then for each part of the body. A watch has it for its headers only: it lasts, and the
// connection finds out by itself whether the API server is there.
type patience struct {
	next  http.RoundTripper
	limit time.Duration
}

// tardyError reports that a read was given up.
type tardyError struct{ limit time.Duration }

func (e tardyError) Error() string {
	return fmt.Sprintf("the API server has not answered for %v", e.limit)
}

// Timeout tells package net that the request timed out.
func (tardyError) Timeout() bool { return true }

// Temporary is for [net.Error].
func (tardyError) Temporary() bool { return true }

// RoundTrip sends a read.
func (p *patience) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(p.limit, func() { cancel(tardyError{p.limit}) })
	over := func() { timer.Stop(); cancel(nil) }
	answer, err := p.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		err = reason(ctx, err)
		over()
		return nil, err
	}
	b := &patientBody{ReadCloser: answer.Body, ctx: ctx, over: over}
	switch q := r.URL.Query(); {
	case q.Has("watch"):
		timer.Stop()
	case q.Has("resourceVersion"), q.Has("limit"), strings.HasSuffix(r.URL.Path, "/log"):
		b.begin = func() { timer.Reset(p.limit) }
		b.end = func() { timer.Stop() }
	}
	answer.Body = b
	return answer, nil
}

// reason returns why a read failed: err, or that it was given up.
func reason(ctx context.Context, err error) error {
	if tardy, ok := errors.AsType[tardyError](context.Cause(ctx)); ok {
		return tardy
	}
	return err
}

// patientBody is the answer to a read. begin and end, if there are any, are called around each
// read of it.
type patientBody struct {
	io.ReadCloser
	ctx              context.Context
	begin, end, over func()
}

func (b *patientBody) Read(p []byte) (int, error) {
	if b.begin != nil {
		b.begin()
		defer b.end()
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = reason(b.ctx, err)
	}
	return n, err
}

func (b *patientBody) Close() error {
	defer b.over()
	return b.ReadCloser.Close()
}
