package kube_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// gate stands between the scheduler and the API server. It holds bindings back of
// which a scenario says how they end, and has pods made when the scenario says so:
// the API server's clock is not the scenario's.
type gate struct {
	mu sync.Mutex
	// guarded are the pods whose bindings are held, by namespace/name; held are the
	// bindings that have come, which are told whether the API server is to have them.
	guarded map[string]bool
	held    map[string]chan bool
}

func newGate() *gate { return &gate{guarded: map[string]bool{}, held: map[string]chan bool{}} }

// through sends requests through the gate.
func (g *gate) through(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet && r.URL.Path == "/api/v1/pods" {
			return retimed(next, r)
		}
		pod, ok := bindingOf(r)
		if !ok {
			return next.RoundTrip(r)
		}
		verdict := g.hold(pod)
		if verdict == nil {
			return next.RoundTrip(r)
		}
		select {
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case ok = <-verdict:
		}
		if ok {
			return next.RoundTrip(r)
		}
		return refused(r, pod)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// bindingOf names the pod that a request is to bind.
func bindingOf(r *http.Request) (string, bool) {
	path, ok := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/")
	namespace, rest, _ := strings.Cut(path, "/pods/")
	name, isBinding := strings.CutSuffix(rest, "/binding")
	return namespace + "/" + name, ok && isBinding && r.Method == http.MethodPost
}

// refused is the answer of an API server that does not let a pod be bound.
func refused(r *http.Request, pod string) (*http.Response, error) {
	status := apierrors.NewForbidden(v1.Resource("pods"), pod, nil).Status()
	status.APIVersion, status.Kind = "v1", "Status"
	body, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusForbidden, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}

// createdAnnotation says when a pod was made by the scenario's clock.
const createdAnnotation = "scenario/created"

// retimed lists or watches pods, with the times at which they were made by the
// scenario's clock.
func retimed(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Accept", "application/json")
	answer, err := next.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusOK {
		return answer, err
	}
	from := answer.Body
	read, write := io.Pipe()
	go func() {
		in, out := json.NewDecoder(from), json.NewEncoder(write)
		in.UseNumber()
		for {
			var o map[string]any // a list, or an event of a watch
			err := in.Decode(&o)
			if err == nil {
				retime(o)
				err = out.Encode(o)
			}
			if err != nil {
				write.CloseWithError(err)
				return
			}
		}
	}()
	answer.Body, answer.ContentLength = &twoEnds{read, from}, -1
	answer.Header.Del("Content-Length")
	return answer, nil
}

// twoEnds is a body that is read from a pipe.
type twoEnds struct {
	*io.PipeReader
	from io.Closer
}

func (b *twoEnds) Close() error { return cmp.Or(b.from.Close(), b.PipeReader.Close()) }

func retime(o map[string]any) {
	items, _ := o["items"].([]any)
	for _, item := range append(items, o["object"]) {
		pod, _ := item.(map[string]any)
		if at, ok, _ := unstructured.NestedString(pod, "metadata", "annotations", createdAnnotation); ok {
			pod["metadata"].(map[string]any)["creationTimestamp"] = at
		}
	}
}

// guard has the bindings of a pod held from now on.
func (g *gate) guard(pod string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.guarded[pod] = true
}

// hold notes a binding that has come; nil lets it pass.
func (g *gate) hold(pod string) chan bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.guarded[pod] {
		return nil
	}
	verdict := make(chan bool, 1)
	g.held[pod] = verdict
	return verdict
}

// holds reports whether a binding of the pod waits at the gate.
func (g *gate) holds(pod string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held[pod] != nil
}

// answer lets the pod's binding pass, or refuses it. It reports whether one waited.
func (g *gate) answer(pod string, ok bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	verdict := g.held[pod]
	if verdict == nil {
		return false
	}
	delete(g.held, pod)
	verdict <- ok
	return true
}
