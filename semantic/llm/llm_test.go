package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-sched/muster/internal/fakellm"
)

const secret = "sk-verysecret-0123456789abcdef"

// client asks a scripted server. It does not wait between requests, but notes for how long it would have.
func client(t *testing.T, change func(*Endpoint), replies ...fakellm.Reply) (*Client, *fakellm.Server, *[]time.Duration) {
	t.Helper()
	s := fakellm.New(replies...)
	t.Cleanup(s.Close)
	at := Endpoint{URL: s.URL + "/v1/", Model: "m", Key: Key{secret}}
	if change != nil {
		change(&at)
	}
	c, err := New(at)
	if err != nil {
		t.Fatal(err)
	}
	var waits []time.Duration
	c.wait = func(ctx context.Context, d time.Duration) error {
		waits = append(waits, d)
		return ctx.Err()
	}
	return c, s, &waits
}

var hello = Chat{Messages: []Message{{Role: User, Content: "hello"}}}

// fails checks the kind of an error, that it is a line, and that it has no key.
func fails(t *testing.T, err error, kind Kind) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Kind != kind {
		t.Fatalf("error %v, want one that is %s", err, kind)
	}
	if strings.Contains(err.Error(), secret[:12]) || strings.Contains(err.Error(), "\n") {
		t.Errorf("the error %q has a key or a line end", err)
	}
}

func TestChat(t *testing.T) {
	c, s, _ := client(t, nil, fakellm.Calls(fakellm.Call{Name: "file_tree", Arguments: `{"path":"."}`}), fakellm.Says("done"))
	chat := hello
	chat.Tools = []Tool{{Name: "file_tree", Parameters: json.RawMessage(`{"type":"object"}`)}}
	m, err := c.Chat(context.Background(), chat)
	if err != nil || len(m.Calls) != 1 || m.Calls[0] != (Call{"call-0", "file_tree", `{"path":"."}`}) {
		t.Fatalf("got %+v, %v", m, err)
	}
	chat.Messages = append(chat.Messages, m, Message{Role: ToolRole, CallID: "call-0", Content: "train.py"})
	if m, err = c.Chat(context.Background(), chat); err != nil || m.Content != "done" {
		t.Fatalf("got %+v, %v", m, err)
	}
	r := s.Requests()[1]
	if r.Path != "/v1/chat/completions" || r.Authorization != "Bearer "+secret || r.Body.Model != "m" || len(r.Body.Tools) != 1 {
		t.Errorf("the request is %+v", r)
	}
	for _, want := range []string{`"tool_call_id":"call-0"`, `"arguments":"{\"path\":\".\"}"`, `"temperature":0`} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("the request has no %s: %s", want, r.Text)
		}
	}
}

// Servers write the same thing in several ways.
func TestFormsOfAnswers(t *testing.T) {
	for name, message := range map[string]string{
		"text":               `{"content":"yes"}`,
		"a list of parts":    `{"content":[{"type":"text","text":"y"},{"type":"text","text":"es"}]}`,
		"nothing but a call": `{"content":null,"tool_calls":[{"id":"1","function":{"name":"f","arguments":{"a":1}}}]}`,
	} {
		c, _, _ := client(t, nil, fakellm.Raw(200, `{"choices":[{"message":`+message+`}]}`))
		m, err := c.Chat(context.Background(), hello)
		if err != nil || m.Content != "yes" && (len(m.Calls) != 1 || m.Calls[0].Arguments != `{"a":1}`) {
			t.Errorf("%s: got %+v, %v", name, m, err)
		}
	}
}

// A server that does not take a schema is asked for any object, then for text, and later calls begin with what it takes.
func TestSchema(t *testing.T) {
	refuses := fakellm.When(func(r fakellm.Request) bool { return r.Body.Format == nil },
		fakellm.Says(`{"a":1}`), fakellm.Raw(400, `{"error":{"message":"response_format is not supported"}}`))
	c, s, _ := client(t, nil, refuses)
	chat := hello
	chat.Schema = json.RawMessage(`{"type":"object"}`)
	for range 2 {
		if m, err := c.Chat(context.Background(), chat); err != nil || m.Content != `{"a":1}` {
			t.Fatalf("got %+v, %v", m, err)
		}
	}
	if n := len(s.Requests()); n != 4 {
		t.Errorf("%d requests, want three forms and the last one again", n)
	}
	// A server that refuses all of them has another reason, and the first error says it.
	c, _, _ = client(t, nil, fakellm.Raw(404, `{"error":"the model m does not exist"}`))
	_, err := c.Chat(context.Background(), chat)
	fails(t, err, Refused)
	if !RefusesTools(err) || !strings.Contains(err.Error(), "HTTP 404: the model m does not exist") {
		t.Errorf("error %v", err)
	}
}

func TestEmbed(t *testing.T) {
	c, s, _ := client(t, func(at *Endpoint) { at.Batch = 2 }, fakellm.Vectors(func(text string) []float32 { return []float32{float32(len(text)), 1} }))
	got, err := c.Embed(context.Background(), []string{"a", "bb", "ccc"})
	if err != nil {
		t.Fatal(err)
	}
	if want := [][]float32{{1, 1}, {2, 1}, {3, 1}}; !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("vectors %v, want %v", got, want)
	}
	if n := len(s.Requests()); n != 2 {
		t.Errorf("%d requests, want 2 batches", n)
	}
}

func TestBadVectors(t *testing.T) {
	for name, body := range map[string]string{
		"too few":            `{"data":[{"index":0,"embedding":[1,2]}]}`,
		"twice the same":     `{"data":[{"index":0,"embedding":[1,2]},{"index":0,"embedding":[1,2]}]}`,
		"an index too large": `{"data":[{"index":0,"embedding":[1,2]},{"index":7,"embedding":[1,2]}]}`,
		"two dimensions":     `{"data":[{"index":0,"embedding":[1,2]},{"index":1,"embedding":[1]}]}`,
		"empty":              `{"data":[{"index":0,"embedding":[]},{"index":1,"embedding":[]}]}`,
		"not a number":       `{"data":[{"index":0,"embedding":[NaN,2]},{"index":1,"embedding":[1,2]}]}`,
		"not finite":         `{"data":[{"index":0,"embedding":[1e300,2]},{"index":1,"embedding":[1,2]}]}`,
		"zeros":              `{"data":[{"index":0,"embedding":[0,0]},{"index":1,"embedding":[1,2]}]}`,
		"text":               `{"data":"none"}`,
	} {
		t.Run(name, func(t *testing.T) {
			c, s, _ := client(t, nil, fakellm.Raw(200, body))
			_, err := c.Embed(context.Background(), []string{"a", "b"})
			fails(t, err, Malformed)
			if n := len(s.Requests()); n != 1 {
				t.Errorf("%d requests: a malformed answer is the same the next time", n)
			}
		})
	}
	// The dimension is that of the first answer that is one, for good.
	c, _, _ := client(t, nil, fakellm.Raw(200, `{"data":[{"index":0,"embedding":[0,0,0]}]}`), fakellm.Raw(200, `{"data":[{"index":0,"embedding":[1,2]}]}`), fakellm.Raw(200, `{"data":[{"index":0,"embedding":[1,2,3]}]}`))
	_, err := c.Embed(context.Background(), []string{"a"})
	fails(t, err, Malformed)
	if _, err := c.Embed(context.Background(), []string{"a"}); err != nil {
		t.Fatal(err)
	}
	_, err = c.Embed(context.Background(), []string{"a"})
	fails(t, err, Malformed)
}

// What may pass is tried again, after the time that the server names, or after pauses that double.
func TestRetries(t *testing.T) {
	for name, reply := range map[string]fakellm.Reply{
		"rate limit":  fakellm.Raw(429, `{"error":{"message":"slow down"}}`),
		"error":       fakellm.Raw(500, "oops"),
		"unavailable": fakellm.Raw(503, ""),
		"dropped":     fakellm.Drop,
		"cut off":     fakellm.Truncate,
	} {
		t.Run(name, func(t *testing.T) {
			c, s, waits := client(t, nil, reply, reply, fakellm.Says("at last"))
			m, err := c.Chat(context.Background(), hello)
			if err != nil || m.Content != "at last" || len(s.Requests()) != 3 {
				t.Fatalf("got %+v, %v after %d requests", m, err, len(s.Requests()))
			}
			if w := *waits; len(w) != 2 || w[0] < 250*time.Millisecond || w[0] > 500*time.Millisecond || w[1] < 500*time.Millisecond || w[1] > time.Second {
				t.Errorf("pauses %v", *waits)
			}
		})
	}
	c, s, _ := client(t, nil, fakellm.Raw(503, ""))
	_, err := c.Chat(context.Background(), hello)
	fails(t, err, Busy)
	if n := len(s.Requests()); n != 3 {
		t.Errorf("%d requests, want 1 and 2 retries", n)
	}
}

func TestRetryAfter(t *testing.T) {
	c, _, waits := client(t, nil, fakellm.Raw(429, "", "Retry-After", "7"), fakellm.Says("ok"))
	if _, err := c.Chat(context.Background(), hello); err != nil || (*waits)[0] != 7*time.Second {
		t.Errorf("waited %v, %v; want 7s", *waits, err)
	}
	// A server that asks for more time than there is gets no second request.
	c, s, _ := client(t, nil, fakellm.Raw(429, "", "Retry-After", "3600"))
	_, err := c.Chat(context.Background(), hello)
	fails(t, err, Busy)
	if len(s.Requests()) != 1 {
		t.Errorf("%d requests, want 1", len(s.Requests()))
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if d := retryAfter(now.Add(time.Minute).Format(http.TimeFormat), now); d != time.Minute {
		t.Errorf("a date a minute ahead is %v", d)
	}
	if d := retryAfter("soon", now); d != 0 {
		t.Errorf("soon is %v", d)
	}
}

// What the server does not accept is not tried again.
func TestRefused(t *testing.T) {
	for _, status := range []int{400, 401, 403, 404, 413, 418} {
		c, s, _ := client(t, nil, fakellm.Raw(status, `{"error":{"message":"Incorrect API key provided: `+secret+`\nand `+secret[:20]+`****"}}`))
		_, err := c.Chat(context.Background(), hello)
		fails(t, err, Refused)
		if len(s.Requests()) != 1 {
			t.Errorf("HTTP %d: %d requests, want 1", status, len(s.Requests()))
		}
	}
}

func TestMalformed(t *testing.T) {
	for name, body := range map[string]string{
		"no JSON":       "<html>",
		"cut off":       `{"choices":[{"message":{"content":"ha`,
		"other types":   `{"choices":[{"message":{"content":7}}]}`,
		"no choice":     `{"choices":[]}`,
		"empty":         `{"choices":[{"message":{"content":"  "}}]}`,
		"at the limit":  `{"choices":[{"finish_reason":"length","message":{"content":"{\"a\":"}}]}`,
		"an empty body": "",
	} {
		t.Run(name, func(t *testing.T) {
			c, _, _ := client(t, nil, fakellm.Raw(200, body))
			_, err := c.Chat(context.Background(), hello)
			fails(t, err, Malformed)
		})
	}
	c, _, _ := client(t, func(at *Endpoint) { at.Answer = 1000 }, fakellm.Says(strings.Repeat("x", 2000)))
	_, err := c.Chat(context.Background(), hello)
	fails(t, err, Malformed)
}

func TestSlow(t *testing.T) {
	c, s, _ := client(t, func(at *Endpoint) { at.Timeout, at.Retries = time.Millisecond, 1 }, fakellm.Hang)
	_, err := c.Chat(context.Background(), hello)
	fails(t, err, Slow)
	if n := len(s.Requests()); n > 2 {
		t.Errorf("%d requests", n)
	}
	c, _, _ = client(t, func(at *Endpoint) { at.Total = time.Millisecond }, fakellm.Hang)
	_, err = c.Chat(context.Background(), hello)
	fails(t, err, Slow)
	// The caller gives up.
	ctx, cancel := context.WithCancel(context.Background())
	c, _, _ = client(t, nil, func(_ http.ResponseWriter, r *http.Request, _ fakellm.Request) { cancel(); <-r.Context().Done() })
	_, err = c.Chat(ctx, hello)
	fails(t, err, Cancelled)
}

// After some calls without an answer none is made for a while, then one that decides.
func TestBreaker(t *testing.T) {
	c, s, _ := client(t, func(at *Endpoint) { at.Retries = -1 }, fakellm.Raw(503, ""), fakellm.Raw(503, ""), fakellm.Raw(503, ""), fakellm.Raw(503, ""), fakellm.Says("back"))
	now := time.Now()
	c.now = func() time.Time { return now }
	ask := func() error { _, err := c.Chat(context.Background(), hello); return err }
	for range 3 {
		fails(t, ask(), Busy)
	}
	fails(t, ask(), Resting)
	now = now.Add(30 * time.Second)
	fails(t, ask(), Busy)
	fails(t, ask(), Resting)
	now = now.Add(30 * time.Second)
	for range 2 {
		if err := ask(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.Requests()); n != 6 {
		t.Errorf("%d requests, want 6: none while the endpoint rests", n)
	}
}

func TestConcurrency(t *testing.T) {
	inside, enough := make(chan struct{}, 100), make(chan struct{})
	var mu sync.Mutex
	now, most := 0, 0
	c, _, _ := client(t, func(at *Endpoint) { at.Concurrency = 2 }, func(w http.ResponseWriter, r *http.Request, got fakellm.Request) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		inside <- struct{}{}
		<-enough
		mu.Lock()
		now--
		mu.Unlock()
		fakellm.Says("ok")(w, r, got)
	})
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			if _, err := c.Chat(context.Background(), hello); err != nil {
				t.Error(err)
			}
		})
	}
	<-inside
	<-inside
	close(enough)
	all.Wait()
	if most != 2 {
		t.Errorf("%d requests at the same time, want 2", most)
	}
}

// The text and the key are for the host that was named.
func TestRedirects(t *testing.T) {
	other := fakellm.New(fakellm.Says("stolen"))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		c, _, _ := client(t, nil, fakellm.Raw(status, "", "Location", other.URL+"/v1/chat/completions"))
		_, err := c.Chat(context.Background(), hello)
		fails(t, err, Refused)
	}
	if n := len(other.Requests()); n != 0 {
		t.Errorf("another host got %d requests", n)
	}
	c, s, _ := client(t, nil, fakellm.Raw(307, "", "Location", "/v2/chat"), fakellm.Says("ok"))
	if m, err := c.Chat(context.Background(), hello); err != nil || m.Content != "ok" || s.Requests()[1].Path != "/v2/chat" {
		t.Errorf("on the same host: %+v, %v", m, err)
	}
}

func TestNew(t *testing.T) {
	for _, bad := range []Endpoint{
		{Model: "m"}, {URL: "vllm:8000", Model: "m"}, {URL: "file:///etc/passwd", Model: "m"}, {URL: "http://vllm"},
		{URL: "http://me:" + secret + "@vllm/v1", Model: "m"}, {URL: "http://vllm/v1?key=" + secret, Model: "m"}, {URL: "http://" + secret + " ", Model: "m"},
	} {
		_, err := New(bad)
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: error %v", bad.URL, err)
		}
	}
}

// A key is printed by nothing.
func TestKey(t *testing.T) {
	t.Setenv("MUSTER_TEST_KEY", " "+secret+"\n")
	k, err := KeyFromEnv("MUSTER_TEST_KEY")
	if err != nil || k.value != secret {
		t.Fatalf("a key of %d bytes, %v", len(k.value), err)
	}
	at := Endpoint{URL: "http://x", Key: k}
	data, _ := json.Marshal(at)
	for _, text := range []string{fmt.Sprint(k), fmt.Sprintf("%v %+v %#v %s %q %x %d", at, at, at, k, k, k, k), string(data)} {
		if strings.Contains(text, secret) || strings.Contains(text, fmt.Sprintf("%x", secret)) {
			t.Errorf("printed: %s", text)
		}
	}
	file := filepath.Join(t.TempDir(), "key")
	for _, bad := range []string{"", "two words", "ключ", strings.Repeat("x", longestKey+1)} {
		if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := KeyFromFile(file); err == nil || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("a file with %.20q: error %v", bad, err)
		}
	}
	if _, err := KeyFromEnv("MUSTER_TEST_NO_KEY"); err == nil {
		t.Error("a variable that is not set is a key")
	}
	if got := k.hide("a " + secret + " b " + secret[4:20] + " c"); strings.Contains(got, secret[4:12]) || !strings.HasPrefix(got, "a (hidden) b (hidden)") {
		t.Errorf("hidden as %q", got)
	}
}

func TestObject(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"a":1}`, `{"a":1}`},
		{"Here it is:\n```json\n{\"a\": {\"b\": \"}\"}}\n```\nI hope {this} helps.", `{"a": {"b": "}"}}`},
		{`<think>{"a":1} or {"a":2}?</think> {"a":3}`, `{"a":3}`},
		{`{"a":1} {"a":2}`, `{"a":2}`},
		{`no object`, ``},
		{`{"a":`, ``},
		{strings.Repeat(`{"a":`, 100_000), ``},
	} {
		if got := string(Object(c.text)); got != c.want {
			t.Errorf("%.60s: %s, want %s", c.text, got, c.want)
		}
	}
}

// What a server says is shown on a terminal, and may be as long as an answer.
func TestTextOfErrors(t *testing.T) {
	said := "a\u009b31m b\u202ec\nd " + strings.Repeat("sk-0123456789abcdef ", 50_000)
	body, _ := json.Marshal(map[string]string{"error": said})
	c, _, _ := client(t, func(at *Endpoint) { at.Key, _ = newKey("sk-0123456789abcdef") }, fakellm.Raw(400, string(body)))
	_, err := c.Chat(context.Background(), hello)
	if want := "refused: HTTP 400: a 31m b c d (hidden) (hidden)"; err == nil || !strings.HasPrefix(err.Error(), want) || len(err.Error()) > 220 || strings.Contains(err.Error(), "0123") {
		t.Errorf("error %q", err)
	}
}
