package translate

import (
	"strings"
	"time"

	"github.com/muster-sched/muster/core"
)

// The message of the condition Waiting says why a job waits, and, after TurnMark, which queue, job or user comes before it; then, each after its mark:
// how many jobs wait in front (AheadMark), when it evicts which others (EvictsMark, with EvictsSeparator between the time and them), or at
// what time the job is expected to start (StartMark), or why no start can be predicted (NoStartMark), in which queue it is, if
// its pods do not say so (QueueMark), that the job ran before (RequeuedMark), and what would free the nearest places
// (NearestMark, with NearestSeparator between them).
const (
	TurnMark    = "; turn: "
	AheadMark   = "; jobs ahead: "
	StartMark   = "; expected start: "
	NoStartMark = "; expected start unknown: "
	EvictsMark  = "; evicts others at "
	QueueMark   = "; in queue: "

	EvictsSeparator = ": "

	RequeuedMark = "; it ran before"

	NearestMark      = "; nearest places: "
	NearestSeparator = " | "
)

// WhyWaiting is the part of such a message that says why the job waits.
func WhyWaiting(message string) string {
	for _, mark := range []string{AheadMark, EvictsMark, StartMark, NoStartMark, QueueMark, RequeuedMark, NearestMark} {
		message, _, _ = strings.Cut(message, mark)
	}
	return message
}

// Clock formats a time for messages. A message with the remaining time would change at every
// moment, and would be written again and again.
func Clock(t core.Time) string { return time.Unix(0, int64(t)).UTC().Format(time.RFC3339) }
