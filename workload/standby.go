package workload

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/core"
)

// Window is when the pods of a job are on standby: they lend their GPUs. From is when they
// begin, in time since the workload's start, and Until when they go on, as announced. Back, between the
// two, is when they take their GPUs back before that, unannounced; 0 if they do not. A daily window
// opens again every 24 hours.
type Window struct {
	From, Until, Back core.Time
	Daily             bool
}

// End returns when the window ends.
func (w *Window) End() core.Time {
	if w.Back > 0 {
		return w.Back
	}
	return w.Until
}

// mostWindows bounds the windows of a job.
const mostWindows = 1000

// parseStandby reads the column standby: FROM-UNTIL or FROM-UNTIL@BACK in seconds, either after
// daily: or not, separated by semicolons.
func parseStandby(text string) ([]Window, error) {
	want := fmt.Errorf("FROM-UNTIL or daily:FROM-UNTIL in seconds, with @BACK for a return before UNTIL, at most %d separated by semicolons, a daily one of at most 24 hours; found %q", mostWindows, text)
	var out []Window
	for part := range strings.SplitSeq(text, ";") {
		var w Window
		part, w.Daily = strings.CutPrefix(part, "daily:")
		part, back, early := strings.Cut(part, "@")
		from, until, ok := strings.Cut(part, "-")
		a, ok1 := parseDecimal([]byte(from), 9)
		b, ok2 := parseDecimal([]byte(until), 9)
		w.From, w.Until = core.Time(a), core.Time(b)
		if early {
			c, ok3 := parseDecimal([]byte(back), 9)
			w.Back = core.Time(c)
			ok = ok && ok3 && w.From < w.Back && w.Back < w.Until
		}
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
		if w.Back > 0 {
			b.WriteString("@" + strconv.FormatFloat(w.Back.Seconds(), 'f', -1, 64))
		}
	}
	return b.String()
}
