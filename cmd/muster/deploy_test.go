package main

import (
	"os"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// What the kustomize base, and so the chart, starts is a command line that the
// scheduler takes.
func TestDeployedFlags(t *testing.T) {
	data, err := os.ReadFile("../../deploy/kustomize/base/muster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var args []string
	for doc := range strings.SplitSeq(string(data), "\n---\n") {
		var o struct {
			Kind string
			Spec struct {
				Template struct {
					Spec struct{ Containers []struct{ Args []string } }
				}
			}
		}
		// Only the Deployment has this shape; others leave it empty.
		if err := yaml.Unmarshal([]byte(doc), &o); err == nil && o.Kind == "Deployment" {
			args = o.Spec.Template.Spec.Containers[0].Args
		}
	}
	if len(args) < 2 || args[0] != "scheduler" {
		t.Fatalf("the Deployment runs %q", args)
	}
	c := newScheduler()
	if err := c.ParseFlags(args[1:]); err != nil {
		t.Error(err)
	}
	if left := c.Flags().Args(); len(left) > 0 {
		t.Errorf("these are no flags: %q", left)
	}
}
