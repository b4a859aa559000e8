package snapshot

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/muster-sched/muster/core"
)

// WriteText writes the answer as text.
func (a Answer) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	settled := a.settled()
	for i, round := range a.Rounds {
		fmt.Fprintf(t, "Round %d\n", i+1)
		for _, d := range round.Decisions {
			fmt.Fprintf(t, "  %s\n", d.text())
		}
		for _, wait := range round.Waiting {
			fmt.Fprintf(t, "  wait\t%s\t\t%s\n", wait.Job, because(wait.Reason, wait.Detail))
		}
		if len(round.Decisions)+len(round.Waiting) == 0 {
			fmt.Fprintln(t, "  nothing to do, and no job waits")
		}
		if i == settled {
			fmt.Fprintln(t, "  (no further changes from here on)")
		}
	}
	return t.Flush()
}

// settled returns the first of at least two identical rounds at the end of the answer,
// with no decisions, or -1 if there are none.
func (a Answer) settled() int {
	settled, last := -1, len(a.Rounds)-1
	for i := last; i >= 0; i-- {
		r := a.Rounds[i]
		if len(r.Decisions) > 0 || !slices.EqualFunc(r.Waiting, a.Rounds[last].Waiting, sameReason) {
			break
		}
		if i < last {
			settled = i
		}
	}
	return settled
}

func sameReason(a, b Waiting) bool { return a.Job == b.Job && a.Reason == b.Reason }

func (d Decision) text() string {
	preposition := "on"
	switch d.Op {
	case "evict":
		preposition = "from"
	case "migrate":
		preposition = "to"
	}
	where := preposition + " " + d.Node
	if len(d.GPUs) > 0 {
		where += " GPU " + ranges(d.GPUs)
	}
	why := d.Reason
	if d.For != "" {
		why += ", for " + d.For
	}
	return strings.Join([]string{d.Op, d.Pod, where, why}, "\t")
}

// ranges writes ascending numbers as 0-3,6.
func ranges(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		end := i
		for end+1 < len(numbers) && numbers[end+1] == numbers[end]+1 {
			end++
		}
		part := strconv.Itoa(numbers[i])
		if end > i {
			part += "-" + strconv.Itoa(numbers[end])
		}
		parts = append(parts, part)
		i = end + 1
	}
	return strings.Join(parts, ",")
}

// because joins a reason and its numbers.
func because(reason, detail string) string {
	if detail == "" {
		return reason
	}
	return reason + ": " + detail
}

// WriteText writes the explanation for people to read.
func (s Explanation) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	line("Job", "%s", s.Job)
	line("State", "%s", s.State)
	line("Pods", "%d running, %d waiting, %d leaving", s.Running, s.Waiting, s.Leaving)
	if s.Reason != "" {
		line("Reason", "%s", because(s.Reason, s.Detail))
		line("Ahead of it", "%s waiting jobs", core.AheadText(s.Ahead))
	}
	if s.Turn != "" {
		line("Turn", "%s", s.Turn)
	}
	if s.Stops != "" {
		line("Stops", "%s", s.Stops)
	}
	if s.Change != "" {
		line("To start it", "%s", s.Change)
	}
	for i, n := range s.Nearest {
		name := ""
		if i == 0 {
			name = "Nearest"
		}
		line(name, "%s", n)
	}
	for i, o := range s.Owed {
		name := ""
		if i == 0 {
			name = "Owed"
		}
		line(name, "%s", o)
	}
	for i, d := range s.Decisions {
		name := ""
		if i == 0 {
			name = "Decided now"
		}
		line(name, "%s", strings.ReplaceAll(d.text(), "\t", " "))
	}
	return t.Flush()
}
