// Package llm asks language and embedding models that speak OpenAI's protocol: vLLM, TEI, Ollama, llama.cpp, a cloud. It needs two of
// its paths, /chat/completions and /embeddings.
//
// A model is a help, never a need: every call ends within a time that is set, costs at most the memory that is set, and either
// returns an answer of the right form or an *Error that says in a line why not. What the answer means is for the caller to check.
// The package writes no log, and no error has a key in it.
package llm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
)

// Stage is what an answer rests on. Each stage falls back to the next one.
type Stage string

// The stages.
const (
	Model     Stage = "llm"       // a language model, and perhaps an embedding endpoint
	Embedding Stage = "embedding" // an embedding endpoint
	Embedded  Stage = "embedded"  // neither: rules and data of this program
)

// Endpoint says where a model is and how it is asked. A zero field has the default that its comment names.
type Endpoint struct {
	URL   string // of the version, such as http://vllm:8000/v1, without user, password and query
	Model string
	Key   Key // the zero value sends none

	Timeout time.Duration // of one request: 30 s
	Total   time.Duration // of a call with its retries and pauses: 2 min
	Retries int           // after the first request: 2; less than 0 is none
	Pause   time.Duration // before the first retry, twice as long before each that follows, up to 16 times: 500 ms

	Answer      int64 // bytes of an answer: 4 MiB
	Concurrency int   // requests at the same time: 4
	Batch       int   // texts in one request for embeddings: 64

	// After Failures calls in a row without an answer no call is made for Rest; then one is, as a trial.
	Failures int           // 3
	Rest     time.Duration // 30 s
}

// Client asks one endpoint. It may be used by many goroutines.
type Client struct {
	at    Endpoint
	http  *http.Client
	slots chan struct{}

	form      atomic.Int32 // of answers by schema: the first of forms that the server takes
	dimension atomic.Int64 // of the vectors so far

	mu       sync.Mutex // protects what is below
	failures int        // in a row
	shut     time.Time  // until then no call is made
	trial    bool       // a call is under way that decides whether others may be

	now  func() time.Time
	wait func(context.Context, time.Duration) error
}

// New returns a client of an endpoint. It makes no request.
func New(at Endpoint) (*Client, error) {
	u, err := url.Parse(at.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("expected a URL that begins with http:// or https://") // what was found may hold a password
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("expected a URL without user, password and query: a key comes from the environment or a file")
	}
	at.URL = strings.TrimRight(at.URL, "/")
	if at.Model == "" {
		return nil, errors.New("expected the name of a model")
	}
	at.Timeout = cmp.Or(at.Timeout, 30*time.Second)
	at.Total = cmp.Or(at.Total, 2*time.Minute)
	at.Retries = max(0, cmp.Or(at.Retries, 2))
	at.Pause = cmp.Or(at.Pause, 500*time.Millisecond)
	at.Answer = cmp.Or(at.Answer, 4<<20)
	at.Concurrency = cmp.Or(at.Concurrency, 4)
	at.Batch = cmp.Or(at.Batch, 64)
	at.Failures = cmp.Or(at.Failures, 3)
	at.Rest = cmp.Or(at.Rest, 30*time.Second)
	c := &Client{at: at, slots: make(chan struct{}, at.Concurrency), now: time.Now, wait: wait}
	c.http = &http.Client{CheckRedirect: sameHost}
	return c, nil
}

// sameHost refuses to follow a server elsewhere: the text and the key are for the host that the user named.
func sameHost(to *http.Request, from []*http.Request) error {
	if first := from[0].URL; to.URL.Scheme != first.Scheme || to.URL.Host != first.Host || to.Method != from[0].Method {
		return errRedirect
	}
	if len(from) > 3 {
		return errRedirect
	}
	return nil
}

var errRedirect = errors.New("it redirects elsewhere")

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Kind is why a call has no answer.
type Kind string

// Kinds of errors. A caller falls back on any of them; the kind says what its user can do.
const (
	Unreachable Kind = "unreachable" // no connection, or one that broke
	Slow        Kind = "slow"        // the time was over
	Busy        Kind = "busy"        // a rate limit, or an error of the server that may pass
	Refused     Kind = "refused"     // the server does not accept the request: a key, a name, a length, a feature
	Malformed   Kind = "malformed"   // an answer that is not of the protocol, is too large or cut off
	Resting     Kind = "resting"     // the last calls failed, so none is made for a while
	Cancelled   Kind = "cancelled"   // the caller's context is done
)

// Error is why a call has no answer. Its text is a line, without keys.
type Error struct {
	Kind   Kind
	Status int // of HTTP, 0 without an answer
	Text   string
	after  time.Duration // the server asks to wait that long
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Kind, e.Text) }

// failed returns an error whose text is one line of at most 200 bytes that a terminal shows as it is, in which the key does not occur.
func (c *Client) failed(kind Kind, status int, format string, args ...any) *Error {
	text := fmt.Sprintf(format, args...)
	if most := 4 * longestKey; len(text) > most { // a server may say much more, and the key is searched for at each place
		text = text[:most]
	}
	text = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, c.at.Key.hide(text))), " ")
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "") + "…"
	}
	return &Error{Kind: kind, Status: status, Text: text}
}
