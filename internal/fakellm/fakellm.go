// Package fakellm is a server that speaks OpenAI's protocol as a script says, for tests of what asks models: it answers, well or
// badly, or not at all.
package fakellm

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
)

// Request is what a client sent.
type Request struct {
	Path, Authorization string
	Text                string // the body as it came
	Body                Body
}

// Body is what this package reads of a request.
type Body struct {
	Model    string `json:"model"`
	Messages []struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	} `json:"messages"`
	Tools  []any    `json:"tools"`
	Format any      `json:"response_format"`
	Input  []string `json:"input"`
}

// Said returns the messages and texts of the request, each in lines of its own.
func (r *Request) Said() string {
	all := slices.Clone(r.Body.Input)
	for _, m := range r.Body.Messages {
		all = append(all, m.Content)
	}
	return strings.Join(all, "\n")
}

// Reply answers a request.
type Reply func(http.ResponseWriter, *http.Request, Request)

// Server answers each request by the next reply, and the ones after the last by that again.
type Server struct {
	*httptest.Server

	mu       sync.Mutex
	replies  []Reply
	requests []Request
}

// New starts a server. Close it.
func New(replies ...Reply) *Server {
	s := &Server{replies: replies}
	s.Server = httptest.NewServer(s)
	return s
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	got := Request{Path: r.URL.Path, Authorization: r.Header.Get("Authorization"), Text: string(data)}
	_ = json.Unmarshal(data, &got.Body)
	s.mu.Lock()
	s.requests = append(s.requests, got)
	reply := s.replies[min(len(s.requests), len(s.replies))-1]
	s.mu.Unlock()
	reply(w, r, got)
}

// Requests returns what was sent so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Raw answers with a status and a body; headers are names and values by turns.
func Raw(status int, body string, headers ...string) Reply {
	return func(w http.ResponseWriter, _ *http.Request, _ Request) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// Says answers with a message of the model.
func Says(text string) Reply {
	return Raw(200, fmt.Sprintf(`{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":%s}}]}`, quote(text)))
}

// Call is a call of a tool.
type Call struct{ Name, Arguments string }

// Calls answers with calls of tools.
func Calls(calls ...Call) Reply {
	var all []any
	for i, c := range calls {
		all = append(all, map[string]any{"id": fmt.Sprintf("call-%d", i), "type": "function", "function": map[string]any{"name": c.Name, "arguments": c.Arguments}})
	}
	text, _ := json.Marshal(all)
	return Raw(200, fmt.Sprintf(`{"choices":[{"finish_reason":"tool_calls","message":{"role":"assistant","content":null,"tool_calls":%s}}]}`, text))
}

// Vectors answers with a vector for each text, in the reverse of their order.
func Vectors(of func(text string) []float32) Reply {
	return func(w http.ResponseWriter, _ *http.Request, r Request) {
		var data []any
		for i := len(r.Body.Input) - 1; i >= 0; i-- {
			data = append(data, map[string]any{"index": i, "embedding": of(r.Body.Input[i])})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": data})
	}
}

// Drop closes the connection without an answer.
func Drop(http.ResponseWriter, *http.Request, Request) { panic(http.ErrAbortHandler) }

// Truncate closes the connection in the middle of an answer.
func Truncate(w http.ResponseWriter, _ *http.Request, _ Request) {
	w.Header().Set("Content-Length", "1000")
	_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"half`)
	panic(http.ErrAbortHandler)
}

// Hang gives no answer until the client gives up.
func Hang(_ http.ResponseWriter, r *http.Request, _ Request) { <-r.Context().Done() }

// When answers by one of two replies.
func When(yes func(Request) bool, then, otherwise Reply) Reply {
	return func(w http.ResponseWriter, r *http.Request, got Request) {
		if yes(got) {
			then(w, r, got)
		} else {
			otherwise(w, r, got)
		}
	}
}

func quote(text string) string {
	data, _ := json.Marshal(text)
	return string(data)
}
