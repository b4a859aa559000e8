package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/snapshot"
)

// othersFlags are flags that the pages name and that are not of this binary.
var othersFlags = []string{
	"mail", "mpi", "nice", "switches", "overlap", "multi-prog", // Slurm
	"nnodes", "node-rank", "master-addr", "nproc-per-node", "rdzv-backend", "rdzv-endpoint", // torchrun
	"controllers", "ephemeral", "exit-with-parent", "gone", "agents", // muster-devcluster
	"as", "clusterrole", "group", "server-side", "force-conflicts", "subresource", "type", "from-file", // kubectl
	"create-namespace", "reuse-values", "reset-then-reuse-values", "set", "set-json", "wait", "config", // helm, kind
}

// pages returns README.md and those of docs/, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d pages: %v", len(files), err)
	}
	texts := map[string]string{}
	for _, file := range append(files, "../../README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(file)] = strings.ReplaceAll(string(text), "\\\n", " ")
	}
	return texts
}

// Each flag that a page names is one of a command. Each flag of a command says in its
// help what it does, and stands in a page that is about the command.
func TestFlagsAreDocumented(t *testing.T) {
	texts := pages(t)
	ours := map[string]bool{"help": true, "version": true}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		_, verb, _ := strings.Cut(c.CommandPath(), " ")
		about := regexp.MustCompile(`(?m)muster ` + verb + `\b|^## ` + verb + `$|flag of .*\x60` + verb + `\x60`)
		c.Flags().VisitAll(func(f *pflag.Flag) {
			ours[f.Name] = true
			if f.Hidden || c.Hidden {
				return
			}
			if f.Usage == "" {
				t.Errorf("%s --%s: its help is empty", c.CommandPath(), f.Name)
			}
			names := "--" + f.Name
			if f.Shorthand != "" {
				names += "|-" + f.Shorthand
			}
			flag := regexp.MustCompile(`(?m)(?:^|[\s\x60(\[])(?:` + names + `)(?:$|[^a-z-])`)
			for _, text := range texts {
				// The expressions are slow; nearly all pages lack the flag.
				named := strings.Contains(text, "--"+f.Name) || f.Shorthand != "" && strings.Contains(text, "-"+f.Shorthand)
				if named && flag.MatchString(text) && about.MatchString(text) {
					return
				}
			}
			t.Errorf("%s: no page that is about it names --%s", c.CommandPath(), f.Name)
		})
		for _, below := range c.Commands() {
			walk(below)
		}
	}
	walk(newRoot(false))
	flag := regexp.MustCompile(`(?:^|[\s\x60(\[])--([a-z][a-z-]*[a-z])`)
	for page, text := range texts {
		for _, m := range flag.FindAllStringSubmatch(text, -1) {
			if name := m[1]; !ours[name] && !slices.Contains(othersFlags, name) {
				t.Errorf("%s names --%s, which no command has", page, name)
			}
		}
	}
}

// A command that a page shows has the flags that it is shown with.
func TestCommandsShownHaveTheirFlags(t *testing.T) {
	shown := regexp.MustCompile(`(?m)(?:^|[\s\x60/])(kubectl )?muster ([a-z][^\x60\n|#]*)`)
	n := 0
	for page, text := range pages(t) {
		for _, m := range shown.FindAllStringSubmatch(strings.ReplaceAll(text, `\|`, ","), -1) {
			words, _, _ := strings.Cut(m[2], " -- ")
			root := newRoot(m[1] != "")
			c, _, err := root.Find(strings.Fields(words))
			if err != nil || c == root {
				continue // a sentence, or a package
			}
			for _, word := range strings.Fields(words) {
				name, _, _ := strings.Cut(strings.Trim(word, "[]();,:…"), "=")
				switch long, found := strings.CutPrefix(name, "--"); {
				case name == "--help" || !strings.HasPrefix(name, "-") || len(name) < 2:
					continue
				case found && c.Flag(long) == nil, !found && c.Flags().ShorthandLookup(name[1:2]) == nil:
					t.Errorf("%s shows %s with %s, which it does not have", page, c.CommandPath(), name)
				}
				n++
			}
		}
	}
	if n < 50 {
		t.Errorf("%d flags are shown: is this test looking in the wrong place?", n)
	}
}

// The policies, queues and snapshots that pages show are read.
func TestExamplesAreRead(t *testing.T) {
	texts := pages(t)
	for _, page := range []string{"policies.md", "decide.md"} {
		blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(texts[page], -1)
		for _, block := range blocks {
			example := []byte(block[1])
			var err error
			switch {
			case strings.Contains(block[1], "\nnodes:"):
				_, err = snapshot.Parse(page, example, builtin)
			case strings.HasPrefix(block[1], "queues:"):
				_, err = snapshot.ParseQueues(page, example)
			default:
				_, err = v1alpha1.Parse(page, example, builtin)
			}
			if err != nil {
				t.Errorf("%v in\n%s", err, example)
			}
		}
		if len(blocks) == 0 {
			t.Errorf("%s has no examples", page)
		}
	}
}

// README.md shows what `make demo` prints, and what explain and audit print about that run.
// How fast it was, in the last column of the first table, depends on the machine.
func TestReadmeShowsTheDemo(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, command, found := strings.Cut(string(makefile), "bin/muster sim --workload kant-training")
	command, _, ended := strings.Cut(command, " --out ")
	if !found || !ended {
		t.Fatal("the Makefile has no demo that it was looked for")
	}
	var stdout, stderr strings.Builder
	dir := t.TempDir()
	args := append([]string{"sim", "--workload", "kant-training", "--out", dir}, strings.Fields(command)...)
	if code := run(args, strings.NewReader(""), &stdout, &stderr); code != exitDone {
		t.Fatalf("muster %v: exit code %d: %s", args, code, stderr.String())
	}
	timeless := func(text string) string {
		first, rest, _ := strings.Cut(text, "\n\n")
		return regexp.MustCompile(`(?m)\s+(\S+|per s)$`).ReplaceAllString(first, "") + "\n\n" + rest
	}
	printed, _, _ := strings.Cut(stdout.String(), "The files are in")
	_, readme, _ := strings.Cut(pages(t)["README.md"], "It prints\n\n```\n")
	if printed = strings.TrimSpace(timeless(printed)); !strings.HasPrefix(strings.TrimSpace(timeless(readme)), printed) {
		t.Errorf("README.md does not show what make demo prints:\n%s", printed)
	}
	for _, asked := range []string{"explain out/demo/default job-001926", "audit out/demo/default"} {
		_, shown, found := strings.Cut(pages(t)["README.md"], "$ bin/muster "+asked+"\n")
		if !found {
			t.Errorf("README.md does not show muster %s", asked)
			continue
		}
		stdout.Reset()
		if code := run(strings.Fields(strings.ReplaceAll(asked, "out/demo", dir)), strings.NewReader(""), &stdout, &stderr); code != exitDone {
			t.Fatalf("muster %s: exit code %d: %s", asked, code, stderr.String())
		}
		if !strings.HasPrefix(shown, stdout.String()) {
			t.Errorf("README.md does not show what muster %s prints:\n%s", asked, stdout.String())
		}
	}
}
