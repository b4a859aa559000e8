package workload

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/core"
)

// Window is when the pods of a job are on standby: they lend their GPUs. From is when they
// begin, in time since the workload's start, and Until when they go on. A daily window opens again
// every 24 hours.
type Window struct {
	From, Until core.Time
	Daily       bool
}

// mostWindows bounds the windows of a job.
const mostWindows = 1000

// parseStandby reads the column standby: FROM-UNTIL in seconds, or daily:FROM-UNTIL, separated
// by semicolons.
func parseStandby(text string) ([]Window, error) {
	want := fmt.Errorf("FROM-UNTIL or daily:FROM-UNTIL in seconds, at most %d separated by semicolons, a daily one of at most 24 hours; found %q", mostWindows, text)
	var out []Window
	for part := range strings.SplitSeq(text, ";") {
		var w Window
		part, w.Daily = strings.CutPrefix(part, "daily:")
		from, until, ok := strings.Cut(part, "-")
		a, ok1 := parseDecimal([]byte(from), 9)
		b, ok2 := parseDecimal([]byte(until), 9)
		w.From, w.Until = core.Time(a), core.Time(b)
		if !ok || !ok1 || !ok2 || w.Until <= w.From || w.Until > Endless || w.Daily && w.Until-w.From > 24*3600*core.Second || len(out) == mostWindows {
			return nil, want
		}
		out = append(out, w)
	}
	return out, nil
}

// standbyText is the column standby of a job.
func standbyText(windows []Window) string {
	var b strings.Builder
	for i, w := range windows {
		if i > 0 {
			b.WriteByte(';')
		}
		if w.Daily {
			b.WriteString("daily:")
		}
		b.WriteString(strconv.FormatFloat(w.From.Seconds(), 'f', -1, 64) + "-" + strconv.FormatFloat(w.Until.Seconds(), 'f', -1, 64))
	}
	return b.String()
}
