package trace

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/muster-sched/muster/kube/journey"
)

func TestJourney(t *testing.T) {
	got := make(chan []byte, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		got <- data
	}))
	defer server.Close()
	t.Setenv(Endpoint, server.URL)
	tracer, err := FromEnvironment(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	at := func(s int) time.Time { return time.Unix(1_000_000+int64(s), 0) }
	tracer.Journey(&journey.Journey{Job: "default/job/train", Queue: "q", Pods: 4, Created: at(0), Submitted: at(1), Decided: at(4), Bound: at(5), Running: at(9)})
	if err := tracer.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	var request collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(<-got, &request); err != nil {
		t.Fatal(err)
	}
	seconds := map[string]uint64{}
	var root []byte
	for _, s := range request.ResourceSpans[0].ScopeSpans[0].Spans {
		seconds[s.Name] = (s.EndTimeUnixNano - s.StartTimeUnixNano) / 1e9
		if s.Name == "job" {
			root = s.SpanId
		}
	}
	for _, s := range request.ResourceSpans[0].ScopeSpans[0].Spans {
		if s.Name != "job" && string(s.ParentSpanId) != string(root) {
			t.Errorf("%s is no part of the job's span", s.Name)
		}
	}
	for name, want := range map[string]uint64{"job": 9, "collect": 1, "wait": 3, "bind": 1, "start": 4} {
		if seconds[name] != want {
			t.Errorf("%s took %d s, want %d", name, seconds[name], want)
		}
	}
}

func TestOff(t *testing.T) {
	t.Setenv(Endpoint, "")
	if tracer, err := FromEnvironment(context.Background()); tracer != nil || err != nil {
		t.Errorf("got %v, %v", tracer, err)
	}
}
