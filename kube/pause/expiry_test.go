package pause

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-sched/muster/agent"
)

// The certificate for agents expires when the first of it and of its authority does.
func TestExpiryGauge(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	if err := agent.WriteCertificates(dir, []string{"127.0.0.1"}, "muster"); err != nil {
		t.Fatal(err)
	}
	files := agent.TLS{Cert: filepath.Join(dir, "client.crt"), Key: filepath.Join(dir, "client.key"), CA: filepath.Join(dir, "ca.crt")}
	want, err := files.Expires()
	if err != nil {
		t.Fatal(err)
	}
	value := func() float64 {
		r := prometheus.NewRegistry()
		r.MustRegister(ExpiryGauge(files))
		families, err := r.Gather()
		if err != nil || len(families) != 1 {
			t.Fatal(families, err)
		}
		return families[0].Metric[0].Gauge.GetValue()
	}
	if got := value(); got != float64(want.Unix()) || want.IsZero() {
		t.Errorf("it says %v, expected %v", got, want.Unix())
	}
	if err := os.Remove(files.CA); err != nil {
		t.Fatal(err)
	}
	if got := value(); got != 0 {
		t.Errorf("without the authority it says %v", got)
	}
}
