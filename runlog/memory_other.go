//go:build !unix

package runlog

// peakRSSMiB is unknown on this platform.
func peakRSSMiB() float64 { return 0 }
