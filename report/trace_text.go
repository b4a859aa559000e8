package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/muster-sched/muster/workload"
)

// TraceText writes the description of a workload as tables and plots for a terminal
// 100 columns wide.
func TraceText(w io.Writer, name string, s *workload.Summary) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "workload\t%s\n", name)
	fmt.Fprintf(t, "jobs\t%s, of which %s are gangs; %s pods\n", Thousands(s.Jobs), Thousands(s.Gangs), Thousands(s.Pods))
	if s.Endless > 0 {
		fmt.Fprintf(t, "endless\t%s jobs, which do not count in GPU-hours, durations and demand\n", Thousands(s.Endless))
	}
	fmt.Fprintf(t, "submitted\t%s to %s\n", Seconds(s.FirstSeconds), Seconds(s.LastSeconds))
	fmt.Fprintf(t, "GPU-hours\t%s\n", Thousands(int(s.GPUHours)))
	if s.CoresPerGPU > 0 {
		fmt.Fprintf(t, "CPU cores per GPU\t%.1f\n", s.CoresPerGPU)
	}
	printShares(t, "size in GPUs", s.Sizes, ofHP)
	printShares(t, "GPU model", s.Models, ofHP)
	printShares(t, "kind", s.Kinds, ofHP)
	printShares(t, "class", s.Classes, demand)
	printShares(t, "outcome", s.Outcomes, ofHP)
	queues := "queue"
	if n := len(s.Queues); n < s.AllQueues {
		queues = fmt.Sprintf("queue (%d of %d)", n, s.AllQueues)
	}
	printShares(t, queues, s.Queues, demand)
	printSpread(t, "duration", brief, &s.Duration, s.Duration.BySize)
	printSpread(t, "GPUs of a job", number, &s.GPUs, nil)
	printSpread(t, "cores of a job", number, &s.Cores, nil)
	printSpread(t, "cores per GPU", number, &s.TaskCoresPerGPU, nil)
	printWeek(t, s)
	printAllocation(t, s.Allocation)
	printHours(t, s.ArrivalsByHour[:])
	return t.Flush()
}

// columns are two more columns of a table of shares.
type columns struct {
	titles [2]string
	values func(*workload.Share) [2]string
}

var (
	// ofHP is how much of the jobs and of the GPU-hours is HP.
	ofHP = columns{[2]string{"HP jobs", "HP hours"}, func(s *workload.Share) [2]string {
		return [2]string{percent(s.HPJobShare), percent(s.HPGPUShare)}
	}}
	// demand is the GPUs that jobs would hold if none waited.
	demand = columns{[2]string{"mean GPUs", "peak GPUs"}, func(s *workload.Share) [2]string {
		return [2]string{number(s.MeanGPUs), number(s.PeakGPUs)}
	}}
)

// printShares writes a table with a row for each property.
func printShares(w io.Writer, title string, shares []workload.Share, more columns) {
	fmt.Fprintf(w, "\n%s\t%11s\t\t%11s\t\t%9s\t%9s\n", title, "jobs", "GPU-hours", more.titles[0], more.titles[1])
	for i := range shares {
		s := &shares[i]
		values := more.values(s)
		fmt.Fprintf(w, "%s\t%11s\t%s\t%11s\t%s\t%9s\t%9s\n",
			s.Name, Thousands(s.Jobs), bar(s.JobShare), Thousands(int(s.GPUHours)), bar(s.GPUShare), values[0], values[1])
	}
}

// printHours writes the submissions by hour of the day; the bars are relative to the
// busiest hour.
func printHours(w io.Writer, arrivals []int) {
	most := 1
	for _, n := range arrivals {
		most = max(most, n)
	}
	fmt.Fprintf(w, "\nhour of the day\t%11s\t\n", "jobs")
	for hour, n := range arrivals {
		fmt.Fprintf(w, "%02d\t%11s\t%s\n", hour, Thousands(n), blocks(float64(n)/float64(most), 20))
	}
}

// bar shows a share in per cent and as a bar.
func bar(share float64) string {
	return strings.TrimRight(fmt.Sprintf("%6s %s", percent(share), blocks(share, 10)), " ")
}

// blocks is a bar of up to this many characters.
func blocks(share float64, most int) string {
	eighths := int(share*float64(most)*8 + 0.5)
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return text
}

// brief writes seconds in the unit that suits them.
func brief(s float64) string {
	switch {
	case s < 120:
		return number(s) + "s"
	case s < 2*3600:
		return number(s/60) + "m"
	case s < 2*86400:
		return number(s/3600) + "h"
	}
	return number(s/86400) + "d"
}

// number writes x with a decimal if it is below a hundred, and has one.
func number(x float64) string {
	if x >= 99.95 {
		return count(int64(x + 0.5))
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", x), ".0")
}
