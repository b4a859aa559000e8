package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is the time for which the cores have worked on this process.
func cpuTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
