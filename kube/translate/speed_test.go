package translate

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestSpeeds reads the speeds of GPU models from the annotation, and refuses wrong ones.
func TestSpeeds(t *testing.T) {
	r, err := Request(&v1.Pod{}, &Attributes{Models: []string{"H20", "XPU-A=0.8"}})
	if err != nil || !slices.Equal(r.Models, []string{"H20", "XPU-A"}) || !slices.Equal(r.Speeds, []int64{1000, 800}) {
		t.Errorf("models %q, speeds %d, %v", r.Models, r.Speeds, err)
	}
	_, err = Request(&v1.Pod{}, &Attributes{Models: []string{"XPU-A=fast"}})
	if err == nil || !strings.Contains(err.Error(), `muster.sh/gpu-models`) || !strings.Contains(err.Error(), `XPU-A=fast`) {
		t.Errorf("a wrong speed: %v", err)
	}
}
