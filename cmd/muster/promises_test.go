package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// othersFlags are flags that the pages name and that are not of this binary.
var othersFlags = []string{
	"mail", "mpi", "nice", "switches", // Slurm
	"nnodes", "node-rank", "master-addr", // torchrun
	"controllers", "ephemeral", "exit-with-parent", "gone", // muster-devcluster
	"as", "clusterrole", "group", "server-side", "subresource", "type", // kubectl
	"create-namespace", "reuse-values", "set", "set-json", "wait", "config", // helm, kind
}

// Each flag that a page names is one of a command, and each flag of a command says
// in its help what it does.
func TestFlagsAreDocumented(t *testing.T) {
	ours := map[string]bool{"help": true, "version": true}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			ours[f.Name] = true
			if f.Usage == "" && !f.Hidden {
				t.Errorf("%s --%s: its help is empty", c.CommandPath(), f.Name)
			}
		})
		for _, below := range c.Commands() {
			walk(below)
		}
	}
	walk(newRoot(false))
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	flag := regexp.MustCompile(`(?:^|[\s\x60(\[])--([a-z][a-z-]*[a-z])`)
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range flag.FindAllSubmatch(text, -1) {
			if name := string(m[1]); !ours[name] && !slices.Contains(othersFlags, name) {
				t.Errorf("%s names --%s, which no command has", page, name)
			}
		}
	}
}
