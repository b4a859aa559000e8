package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

// SinceBoot is a clock that also runs while this process is stopped and while the machine
// is suspended, and that cannot be set. Go's own clock stops in a suspend.
func SinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // every kernel that Go runs on has it
	}
	return time.Duration(t.Nano())
}
