package report

import (
	"fmt"
	"strconv"
	"strings"
)

// percent writes a ratio.
func percent(ratio float64) string { return fmt.Sprintf("%.1f%%", ratio*100) }

// duration writes seconds in at most six characters, up to 9999 days.
func duration(s float64) string {
	const minute, hour, day = 60, 3600, 86400
	switch {
	case s == 0:
		return "0s"
	case s < 1:
		return fmt.Sprintf("%.2fs", s)
	case s < 2*minute:
		return trim(s) + "s"
	case s < 2*hour:
		return trim(s/minute) + "m"
	case s < 2*day:
		return trim(s/hour) + "h"
	}
	return trim(s/day) + "d"
}

// Seconds writes a time in seconds as 1h30m, to the second from a minute on.
func Seconds(s float64) string {
	if s < 60 {
		return strconv.FormatFloat(s, 'g', 3, 64) + "s"
	}
	text, left := "", int64(s)
	for _, u := range []struct {
		is   int64
		name string
	}{{86400, "d"}, {3600, "h"}, {60, "m"}, {1, "s"}} {
		if n := left / u.is; n > 0 {
			text += strconv.FormatInt(n, 10) + u.name
			left -= n * u.is
		}
	}
	return text
}

// trim writes x with a decimal if it is below a hundred, and has one.
func trim(x float64) string {
	if x >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", x), ".0")
}

// Thousands writes n with commas: 1,234,567.
func Thousands(n int) string { return count(int64(n)) }

func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// short writes x in at most six characters.
func short(x float64) string {
	switch {
	case x < 1e4:
		return trim(x)
	case x < 1e6:
		return trim(x/1e3) + "k"
	case x < 1e9:
		return trim(x/1e6) + "M"
	}
	return trim(x/1e9) + "G"
}
