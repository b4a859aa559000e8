//go:build unix

package runlog

import (
	"runtime"
	"syscall"
)

// peakRSSMiB returns the most memory the process has had resident.
func peakRSSMiB() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return float64(u.Maxrss) / (1 << 20) // bytes; elsewhere KiB
	}
	return float64(u.Maxrss) / (1 << 10)
}
