package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// call posts a request to a path of the endpoint until there is an answer or no hope for one, and decodes it into answer.
// check says whether it is one of the protocol.
func (c *Client) call(ctx context.Context, path string, request, answer any, check func() error) error {
	body, err := json.Marshal(request)
	if err != nil {
		return c.failed(Malformed, 0, "the request is no JSON: %v", err)
	}
	total, stop := context.WithTimeout(ctx, c.at.Total)
	defer stop()
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-total.Done():
		return c.over(ctx)
	}
	if err := c.enter(); err != nil {
		return err
	}
	e := c.retry(ctx, total, path, body, answer, check)
	c.leave(e)
	if e != nil {
		return e
	}
	return nil
}

// retry makes requests until one is answered, none can be, or the time is over.
func (c *Client) retry(ctx, total context.Context, path string, body []byte, answer any, check func() error) *Error {
	pause := c.at.Pause
	for tries := 0; ; tries++ {
		e := c.request(ctx, total, path, body, answer, check)
		if e == nil || !e.passing() || tries == c.at.Retries {
			return e
		}
		delay := max(e.after, pause/2+rand.N(pause/2+1)) // some chance, so that clients that failed together do not come back together
		if end, ok := total.Deadline(); ok && e.after > 0 && c.now().Add(delay).After(end) {
			return e // the server asks to wait for longer than we may
		}
		if c.wait(total, delay) != nil {
			return c.over(ctx)
		}
		pause = min(2*pause, 16*c.at.Pause)
	}
}

// passing says whether the same request may be answered later.
func (e *Error) passing() bool {
	return e.Kind == Unreachable || e.Kind == Busy || e.Kind == Slow
}

// over returns the error that the time is over, or that the caller gave up.
func (c *Client) over(ctx context.Context) *Error {
	if ctx.Err() != nil {
		return c.failed(Cancelled, 0, "%v", ctx.Err())
	}
	return c.failed(Slow, 0, "no answer within %v", c.at.Total)
}

// request makes one request.
func (c *Client) request(ctx, total context.Context, path string, body []byte, answer any, check func() error) *Error {
	once, stop := context.WithTimeout(total, c.at.Timeout)
	defer stop()
	r, err := http.NewRequestWithContext(once, http.MethodPost, c.at.URL+path, bytes.NewReader(body))
	if err != nil {
		return c.failed(Refused, 0, "%v", err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	if c.at.Key.value != "" {
		r.Header.Set("Authorization", "Bearer "+c.at.Key.value)
	}
	got, err := c.http.Do(r)
	if err != nil {
		return c.broken(ctx, total, once, err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(io.LimitReader(got.Body, c.at.Answer+1))
	switch {
	case err != nil:
		return c.broken(ctx, total, once, err)
	case got.StatusCode != http.StatusOK:
		return c.refused(got, text)
	case int64(len(text)) > c.at.Answer:
		return c.failed(Malformed, got.StatusCode, "the answer has more than %d bytes", c.at.Answer)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return c.failed(Malformed, got.StatusCode, "the answer is no JSON of the protocol: %v", err)
	}
	if err := check(); err != nil {
		return c.failed(Malformed, got.StatusCode, "%v", err)
	}
	return nil
}

// broken says why a request has no answer, or only the begin of one.
func (c *Client) broken(ctx, total, once context.Context, err error) *Error {
	switch {
	case ctx.Err() != nil || total.Err() != nil:
		return c.over(ctx)
	case once.Err() != nil:
		return c.failed(Slow, 0, "no answer within %v", c.at.Timeout)
	case errors.Is(err, errRedirect):
		return c.failed(Refused, 0, "%s redirects to another host, protocol or method", c.at.URL)
	}
	return c.failed(Unreachable, 0, "%v", err)
}

// refused says why the server does not answer.
func (c *Client) refused(got *http.Response, text []byte) *Error {
	var body struct {
		Error   json.RawMessage `json:"error"` // an object, as OpenAI has it, or a text
		Message string          `json:"message"`
	}
	var inner struct {
		Message string `json:"message"`
	}
	says := ""
	if json.Unmarshal(text, &body) == nil {
		if says = body.Message; json.Unmarshal(body.Error, &inner) == nil && inner.Message != "" {
			says = inner.Message
		} else {
			_ = json.Unmarshal(body.Error, &says)
		}
	}
	if says == "" {
		says = "without a reason"
	}
	e := c.failed(Refused, got.StatusCode, "HTTP %d: %s", got.StatusCode, says)
	switch got.StatusCode {
	case http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		e.Kind, e.after = Busy, retryAfter(got.Header.Get("Retry-After"), c.now())
	}
	return e
}

// retryAfter reads the header of that name: seconds, or a date; 0 without it.
func retryAfter(text string, now time.Time) time.Duration {
	if s, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(s) * time.Second
	}
	if t, err := http.ParseTime(text); err == nil {
		return max(0, t.Sub(now))
	}
	return 0
}

// enter says whether a call may be made. The circuit breaker refuses it while the endpoint rests, and while another call
// finds out whether it is back.
func (c *Client) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failures < c.at.Failures {
		return nil
	}
	if c.trial || c.now().Before(c.shut) {
		return c.failed(Resting, 0, "the last %d calls of %s failed", c.failures, c.at.URL)
	}
	c.trial = true
	return nil
}

// leave counts the outcome of a call. A server that answers is there, even if it refuses the request.
func (c *Client) leave(e *Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trial = false
	switch {
	case e == nil || e.Kind == Refused || e.Kind == Malformed:
		c.failures = 0
	case e.Kind != Cancelled:
		if c.failures++; c.failures >= c.at.Failures {
			c.shut = c.now().Add(c.at.Rest)
		}
	}
}
