package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/workload"
)

// printTrace writes the description of a workload as tables.
func printTrace(w io.Writer, name string, s workload.Summary) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "workload\t%s\n", name)
	fmt.Fprintf(t, "jobs\t%s, of which %s are gangs; %s pods\n", thousands(s.Jobs), thousands(s.Gangs), thousands(s.Pods))
	if s.Endless > 0 {
		fmt.Fprintf(t, "endless\t%s jobs, which do not count in GPU-hours and durations\n", thousands(s.Endless))
	}
	fmt.Fprintf(t, "submitted\t%s to %s\n", seconds(s.FirstSeconds), seconds(s.LastSeconds))
	fmt.Fprintf(t, "GPU-hours\t%s\n", thousands(int(s.GPUHours)))
	if s.CoresPerGPU > 0 {
		fmt.Fprintf(t, "CPU cores per GPU\t%.1f\n", s.CoresPerGPU)
	}
	d := s.Duration
	fmt.Fprintf(t, "duration\tmean %s, p10 %s, p50 %s, p90 %s, p99 %s, max %s\n",
		seconds(d.Mean), seconds(d.P10), seconds(d.P50), seconds(d.P90), seconds(d.P99), seconds(d.Max))
	printShares(t, "size in GPUs", s.Sizes)
	printShares(t, "GPU model", s.Models)
	printShares(t, "kind", s.Kinds)
	printShares(t, "class", s.Classes)
	printShares(t, "outcome", s.Outcomes)
	queues := "queue"
	if n := len(s.Queues); n < s.AllQueues {
		queues = fmt.Sprintf("queue (%d of %d)", n, s.AllQueues)
	}
	printShares(t, queues, s.Queues)
	printHours(t, s.ArrivalsByHour[:])
	return t.Flush()
}

// printShares writes a table with a row for each property.
func printShares(w io.Writer, title string, shares []workload.Share) {
	fmt.Fprintf(w, "\n%s\t%11s\t\t%11s\t\n", title, "jobs", "GPU-hours")
	for _, s := range shares {
		fmt.Fprintf(w, "%s\t%11s\t%s\t%11s\t%s\n", s.Name, thousands(s.Jobs), bar(s.JobShare), thousands(int(s.GPUHours)), bar(s.GPUShare))
	}
}

// printHours writes when in the day jobs are submitted; the bars are as shares
// of the busiest hour.
func printHours(w io.Writer, arrivals []int) {
	most := 1
	for _, n := range arrivals {
		most = max(most, n)
	}
	fmt.Fprintf(w, "\nhour of the day\t%11s\t\n", "jobs")
	for hour, n := range arrivals {
		fmt.Fprintf(w, "%02d\t%11s\t%s\n", hour, thousands(n), blocks(float64(n)/float64(most)))
	}
}

// bar shows a share in per cent and as a bar.
func bar(share float64) string {
	return strings.TrimRight(fmt.Sprintf("%5.1f%% %s", 100*share, blocks(share)), " ")
}

// blocks is a bar of up to 20 characters.
func blocks(share float64) string {
	eighths := int(share*20*8 + 0.5)
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return text
}

// thousands writes n with commas: 1,234,567.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// seconds writes a time in seconds as 1h30m, to the second from a minute on.
func seconds(s float64) string {
	t := core.Time(s * float64(core.Second))
	if t >= 60*core.Second {
		return v1alpha1.Duration(t - t%core.Second).String()
	}
	return strconv.FormatFloat(s, 'g', 3, 64) + "s"
}
