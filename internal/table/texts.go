package table

import (
	"fmt"
	"strings"
	"time"
)

// Clock writes a time as Slurm does: 0:00, 59:59, 1:00:00, 1-00:00:00.
func Clock(d time.Duration) string {
	s := int64(d / time.Second)
	days, h, m, s := s/86400, s/3600%24, s/60%60, s%60
	switch {
	case days > 0:
		return fmt.Sprintf("%d-%02d:%02d:%02d", days, h, m, s)
	case h > 0:
		return fmt.Sprintf("%d:%02d:%02d", h, m, s)
	}
	return fmt.Sprintf("%d:%02d", m, s)
}

// Span writes a time in its two largest units; "-" for none.
func Span(d time.Duration) string {
	s := int64(d / time.Second)
	switch {
	case s <= 0:
		return "-"
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	}
	return fmt.Sprintf("%dd%02dh", s/86400, s/3600%24)
}

// Stamp writes a point in time.
func Stamp(t time.Time) string { return t.Local().Format("2006-01-02T15:04:05") }

// Bar shows a part of a whole, 0 to 1: [####----] 50%.
func Bar(part float64) string {
	const width = 20
	n := min(int(part*width+0.5), width)
	return fmt.Sprintf("[%s%s] %3.0f%%", strings.Repeat("#", n), strings.Repeat("-", width-n), 100*part)
}
