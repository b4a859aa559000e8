//go:build !unix

package runlog

// peakRSSMiB is not known here.
func peakRSSMiB() float64 { return 0 }
