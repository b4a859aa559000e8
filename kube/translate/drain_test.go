package translate

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
)

func TestDrainAnnotation(t *testing.T) {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{}}}
	n.Spec.Unschedulable = true
	for text, want := range map[string]*Drain{
		"10m": {Wait: 10 * time.Minute}, "0s": {}, "1h30m 2026-01-02T03:04:05Z": {Wait: 90 * time.Minute, Request: "2026-01-02T03:04:05Z"}, "": nil, "now": nil,
	} {
		n.Annotations[v1alpha1.DrainAnnotation] = text
		got, err := DrainOf(n)
		if (err == nil) != (want != nil) || got != nil && *got != *want || got != nil && text != "10m" && got.String() != text {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
