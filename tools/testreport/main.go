// Command testreport reads what `go test -json` writes, and prints what go test would: a line for each
// package, and the output of tests that fail. It adds a line for each reason for which tests were skipped,
// to the standard output and to the file that is its argument.
//
// With CI=true in the environment it fails if all tests of a package were skipped: then nobody would know that
// what the package does is not tested.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go test -json ./... | testreport FILE")
		os.Exit(2)
	}
	r := newReport(os.Stdout)
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
	lines := r.skipped()
	fmt.Print(text(lines))
	file, err := os.OpenFile(os.Args[1], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = file.WriteString(text(lines))
		err = cmp.Or(err, file.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
	hidden := r.hidden()
	for _, line := range hidden {
		fmt.Println(line)
	}
	if r.failed || len(hidden) > 0 && os.Getenv("CI") == "true" {
		os.Exit(1)
	}
}

func text(lines []string) string {
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	return b.String()
}

// event is a line of `go test -json`.
type event struct {
	Action, Package, Test, Output, ImportPath string
}

// test names a test of a package.
type test struct{ pkg, name string }

// counts are the tests of a package, those within others not counted.
type counts struct{ ran, skipped int }

type report struct {
	out     io.Writer
	outputs map[test][]string // of tests that have not ended
	reasons map[string][]test // of skipped tests, by why
	tests   map[string]*counts
	failed  bool
}

func newReport(out io.Writer) *report {
	return &report{out: out, outputs: map[test][]string{}, reasons: map[string][]test{}, tests: map[string]*counts{}}
}

// read reads events until there are no more. Lines that are none, such as those of a build, are printed.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
				fmt.Fprint(r.out, line)
			} else {
				r.add(&e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) add(e *event) {
	t := test{e.Package, e.Test}
	top := e.Test != "" && !strings.Contains(e.Test, "/")
	n := r.tests[e.Package]
	if n == nil {
		n = &counts{}
		r.tests[e.Package] = n
	}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "build-fail":
		r.failed = true
	case "output":
		if e.Test == "" {
			if e.Output != "PASS\n" {
				fmt.Fprint(r.out, e.Output)
			}
			return
		}
		r.outputs[t] = append(r.outputs[t], e.Output)
	case "fail":
		r.failed = true
		for _, line := range r.outputs[t] {
			fmt.Fprint(r.out, line)
		}
		delete(r.outputs, t)
		if top {
			n.ran++
		}
	case "pass":
		delete(r.outputs, t)
		if top {
			n.ran++
		}
	case "skip":
		if e.Test != "" {
			why := reason(r.outputs[t])
			r.reasons[why] = append(r.reasons[why], t)
		}
		if delete(r.outputs, t); top {
			n.skipped++
		}
	}
}

var (
	place  = regexp.MustCompile(`^ *[\w.-]+\.go:\d+: `)
	marker = regexp.MustCompile(`^ *(=== |--- )`)
)

// reason is what a test said when it was skipped, in one line.
func reason(output []string) string {
	var parts []string
	for _, line := range output {
		if !marker.MatchString(line) {
			parts = append(parts, strings.TrimSpace(place.ReplaceAllString(line, "")))
		}
	}
	return cmp.Or(strings.Join(parts, " "), "no reason is given")
}

// skipped returns a line for each reason for which tests were skipped.
func (r *report) skipped() []string {
	var lines []string
	for _, why := range slices.Sorted(maps.Keys(r.reasons)) {
		tests := r.reasons[why]
		what := fmt.Sprintf("%d tests, such as %s", len(tests), tests[0].name)
		if len(tests) == 1 {
			what = tests[0].name
		}
		lines = append(lines, fmt.Sprintf("skipped: %s (%s): %s", what, tests[0].pkg, why))
	}
	return lines
}

// hidden returns a line for each package all tests of which were skipped.
func (r *report) hidden() []string {
	var lines []string
	for _, pkg := range slices.Sorted(maps.Keys(r.tests)) {
		if n := r.tests[pkg]; n.ran == 0 && n.skipped > 0 {
			lines = append(lines, fmt.Sprintf("nothing of %s is tested: all %d tests were skipped", pkg, n.skipped))
		}
	}
	return lines
}
