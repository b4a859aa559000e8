package main

import "github.com/muster-sched/muster/internal/spelling"

// didYouMean returns ` (did you mean "x"?)` for the known name nearest to what
// was written, and nothing when none is near.
func didYouMean(written string, known []string) string {
	best := spelling.Nearest(written, known)
	if best == "" {
		return ""
	}
	return ` (did you mean "` + best + `"?)`
}
