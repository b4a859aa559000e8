package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/kube/console"
)

// A log from stdin can be read twice, and a command that is interrupted between leaves no copy of it.
func TestCopyOfStdinHasNoName(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	c := &cobra.Command{}
	c.SetIn(strings.NewReader("step 1 loss 2\n"))
	logs := []jobLog{{name: "-"}}
	done, err := rereadable(c, logs)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the folder for temporary files has %v (%v), want nothing", left, err)
	}
	for range 2 {
		in, err := logs[0].open(c, console.LogPart{})
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(in); err != nil || string(text) != "step 1 loss 2\n" {
			t.Errorf("read %q, %v", text, err)
		}
		in.Close()
	}
}
