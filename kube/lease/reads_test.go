package lease

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// tripper answers requests as a function says.
type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// bytesAfter is a body of one byte after each of some pauses; it is over when its request is.
func bytesAfter(r *http.Request, pauses ...time.Duration) io.ReadCloser {
	from, to := io.Pipe()
	go func() {
		for _, d := range pauses {
			select {
			case <-time.After(d):
			case <-r.Context().Done():
				to.CloseWithError(r.Context().Err())
				return
			}
			if _, err := to.Write([]byte{'x'}); err != nil {
				return
			}
		}
		to.Close()
	}()
	return from
}

// A read ends, whatever the API server does: with its answer within the time limit, or with an
// error that says so. Lists of all objects and watches may last, as long as something comes.
func TestReadsEnd(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		what, query string
		header      time.Duration // until the headers come
		body        []time.Duration
		bytes       int
		fails       bool
	}{
		{"a fast answer", "", s, []time.Duration{s, s}, 2, false},
		{"no headers", "", 11 * s, nil, 0, true},
		{"a body that stops", "", s, []time.Duration{s, 3600 * s}, 1, true},
		{"a body that takes too long", "", s, []time.Duration{4 * s, 4 * s, 4 * s}, 2, true},
		{"a list that takes long", "?resourceVersion=0", 9 * s, []time.Duration{9 * s, 9 * s, 9 * s}, 3, false},
		{"a page of a list", "?limit=500", 9 * s, []time.Duration{9 * s, 9 * s}, 2, false},
		{"a list that stops", "?resourceVersion=0", s, []time.Duration{9 * s, 11 * s}, 1, true},
		{"a list without headers", "?resourceVersion=0", 11 * s, nil, 0, true},
		{"a watch", "?watch=true&resourceVersion=7", s, []time.Duration{s, 3600 * s}, 2, false},
		{"a watch without headers", "?watch=true&resourceVersion=7", 11 * s, nil, 0, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &patience{limit: 10 * s, next: tripper(func(r *http.Request) (*http.Response, error) {
				select {
				case <-time.After(c.header):
					return &http.Response{StatusCode: http.StatusOK, Body: bytesAfter(r, c.body...)}, nil
				case <-r.Context().Done():
					return nil, fmt.Errorf("the request is over: %w", r.Context().Err())
				}
			})}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api/x"+c.query, nil)
			if err != nil {
				t.Fatal(err)
			}
			var data []byte
			answer, err := p.RoundTrip(r)
			if err == nil {
				data, err = io.ReadAll(answer.Body)
				if closing := answer.Body.Close(); closing != nil {
					t.Error(closing)
				}
			}
			if _, tardy := err.(tardyError); tardy != c.fails || err != nil && !tardy || len(data) != c.bytes {
				t.Errorf("%s: %d bytes and error %v; want %d and that it is given up: %t", c.what, len(data), err, c.bytes, c.fails)
			}
		})
	}
}
