package mirror

import (
	"context"
	"errors"
	"maps"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube/objects"
	"github.com/muster-sched/muster/kube/stats"
)

// scraped returns what a scrape tells, but for buckets, sums, how long things
// took, and the process.
func scraped(r prometheus.Gatherer) map[string]string {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	out := map[string]string{}
	for line := range strings.Lines(w.Body.String()) {
		i := strings.LastIndexByte(line, ' ')
		if name := line[:i]; name[0] != '#' && !strings.Contains(name, "_bucket") && !strings.Contains(name, "_sum") && !strings.Contains(name, "_duration_") &&
			!strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			out[name] = strings.TrimSpace(line[i:])
		}
	}
	return out
}

func TestGauges(t *testing.T) {
	y := newToy(t)
	y.metrics = stats.NewMetrics()
	y.node("a", 8)
	n := y.node("b", 8)
	n.Spec.Unschedulable = true
	y.nodeSeen(objects.TrimNode(n))
	y.queuesListed([]*v1alpha1.Queue{queueObject("q", "", v1alpha1.Quota{Model: "*", Nominal: GPUs(16)})})
	y.start()
	asked, clock := 0, startOfTime
	y.metrics.Registry.MustRegister(&stats.Gauges{Now: func() time.Time { return clock }, Stats: func(context.Context) (stats.Stats, error) {
		asked++
		if asked == 3 {
			return stats.Stats{}, errors.New("busy")
		}
		return y.Stats(), nil
	}})
	for _, name := range []string{"x", "y"} {
		p := newTestPod(name, 5)
		p.Labels[v1alpha1.QueueLabel] = "q"
		y.see(p)
	}
	y.run()
	y.now += 2e9
	y.Explain(10)
	got := scraped(y.metrics.Registry)
	want := map[string]string{
		`muster_gpus{model="H800",state="allocated"}`: "5", `muster_gpus{model="H800",state="free"}`: "3",
		`muster_gpus{model="H800",state="unavailable"}`: "8", `muster_fragmented_nodes{model="H800"}`: "1",
		`muster_jobs{queue="q",state="pending"}`: "1", `muster_jobs{queue="q",state="running"}`: "1",
		`muster_jobs{queue="default",state="pending"}`: "0", `muster_jobs{queue="default",state="running"}`: "0",
		`muster_jobs{queue="muster-other-schedulers",state="pending"}`: "0", `muster_jobs{queue="muster-other-schedulers",state="running"}`: "0",
		`muster_queue_gpus{kind="nominal",model="*",queue="q"}`: "16", `muster_queue_gpus{kind="borrowed",model="*",queue="q"}`: "0",
		`muster_queue_gpus{kind="nominal",model="H800",queue="q"}`: "0", `muster_queue_gpus{kind="borrowed",model="H800",queue="q"}`: "0",
		`muster_queue_gpus{kind="used",model="H800",queue="q"}`: "5",
		`muster_waiting_jobs{reason="Resources"}`:               "1", `muster_wait_seconds_count{queue="q"}`: "1",
		`muster_decisions_total{op="bind",reason="Placed"}`: "1", `muster_quarantined_jobs`: "0", `muster_standby_resume_seconds_count`: "0", `muster_unread_objects_total`: "0",
		`muster_preemptions_total`: "0", `muster_unhealthy_gpus{model="H800"}`: "0", `muster_nodes{state="open"}`: "1", `muster_nodes{state="closed"}`: "1",
	}
	// Node a has three of eight GPUs idle, node b is cordoned.
	for shape, idle := range map[string][2]string{"1g8c": {"3"}, "2g16c": {"2", "1"}, "4g32c": {"", "3"}, "8g64c": {"", "3"}} {
		for _, twice := range []string{shape, map[string]string{"1g8c": "1g16c", "2g16c": "2g32c", "4g32c": "4g64c", "8g64c": "8g128c"}[shape]} {
			for i, cause := range []string{"allocatable", "stranded"} {
				if idle[i] != "" {
					want[`muster_idle_gpus{cause="`+cause+`",model="H800",shape="`+twice+`"}`] = idle[i]
				}
			}
			want[`muster_idle_gpus{cause="cordoned",model="H800",shape="`+twice+`"}`] = "8"
		}
	}
	for _, job := range []string{"128x12c", "256x12c"} {
		want[`muster_idle_gpus{cause="stranded",model="H800",shape="`+job+`"}`] = "3"
		want[`muster_idle_gpus{cause="cordoned",model="H800",shape="`+job+`"}`] = "8"
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}

	// Within a second nobody is asked again; who gets no answer is told nothing.
	scraped(y.metrics.Registry)
	clock = clock.Add(time.Second)
	scraped(y.metrics.Registry)
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
	clock = clock.Add(time.Second)
	if got := scraped(y.metrics.Registry); got[`muster_gpus{model="H800",state="free"}`] != "" {
		t.Errorf("got %v", got)
	}
}
