// Package trace tells OpenTelemetry of the way of jobs: a span from a job's
// creation until it runs, and in it one for each part of the way.
package trace

import (
	"context"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/muster-sched/muster/kube/journey"
)

// Endpoint is the variable that says where the collector is. Without it nothing
// is traced. The other variables of OpenTelemetry count too: of the exporter, the
// sampler and the resource.
const Endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"

// Tracer sends journeys to a collector.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// FromEnvironment returns a tracer as the environment says, nil when it names no
// collector.
func FromEnvironment(ctx context.Context) (*Tracer, error) {
	if os.Getenv(Endpoint) == "" {
		return nil, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, err
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "muster")), resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil {
		return nil, err
	}
	p := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))
	return &Tracer{provider: p, tracer: p.Tracer("github.com/muster-sched/muster")}, nil
}

// Journey sends a journey on its way. It does not wait for the collector: what
// that cannot take is dropped.
func (t *Tracer) Journey(j *journey.Journey) {
	ctx, whole := t.tracer.Start(context.Background(), "job", trace.WithTimestamp(j.Created), trace.WithNewRoot(), trace.WithAttributes(
		attribute.String("muster.job", j.Job), attribute.String("muster.queue", j.Queue), attribute.Int("muster.pods", j.Pods),
	))
	part := func(name string, from, to time.Time) {
		_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(from))
		span.End(trace.WithTimestamp(to))
	}
	part("collect", j.Created, j.Submitted)
	part("wait", j.Submitted, j.Decided)
	part("bind", j.Decided, j.Bound)
	part("start", j.Bound, j.Running)
	whole.End(trace.WithTimestamp(j.Running))
}

// Close sends what is left, and waits for that as long as ctx allows.
func (t *Tracer) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }
