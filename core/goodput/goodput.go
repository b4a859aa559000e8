// Package goodput chooses for each of several jobs how many GPUs it runs on, and of which model (Sia, SOSP 2023, §3.4).
//
// Each job has configurations: a number of GPUs of one model, and what it is worth that the job runs so. It gets one of them or
// none, and the sum of what they are worth is as large as the free GPUs allow. Which nodes they are is decided afterwards, and
// that is always possible: [Sizes] has powers of two within a node and whole nodes.
//
// Sia's authors solve that as an integer program. It has one row for each GPU model beside those of the jobs, so it is a
// knapsack with a choice for each job: [Exact] solves it by dynamic programming over what is free of each model. With many
// models of many GPUs that are too many states, and [Priced] puts a price on each model instead.
package goodput

import "math"

// Config is a way to run a job.
type Config struct {
	// Model is an index into what is free.
	Model int
	// GPUs is above 0.
	GPUs int
	// Value is what it is worth; a configuration that is worth 0 or less is never chosen. The sum over all jobs must fit in 62 bits.
	Value int64
}

// None is the choice of no configuration.
const None = -1

// Work is how many sums [Choose] looks at at most to choose exactly: about a quarter of a second, and some hundred MiB. Each of the
// [States] counts as overhead sums beside those of the configurations, for the memory that it takes.
const (
	Work     = 200_000_000
	overhead = 16
)

// Choose returns [Exact], or [Priced] where that would take more than [Work] sums.
func Choose(free []int, jobs [][]Config) []int {
	configs := overhead
	for _, j := range jobs {
		configs += 1 + len(j)
	}
	if states := States(free); states > 0 && states <= Work/configs {
		return Exact(free, jobs)
	}
	choice, _ := Priced(free, jobs)
	return choice
}

// States is how many combinations of free GPUs there are: none of the first model to all of it, times those of the second and so
// on. It is 0 if that is more than an int32 holds.
func States(free []int) int {
	n := 1
	for _, f := range free {
		if f < 0 || f >= math.MaxInt32/n {
			return 0
		}
		n *= f + 1
	}
	return n
}

// Sizes are the numbers of GPUs that a job may have on some nodes with as many GPUs each: powers of two within a node, the whole
// node, and whole nodes. Jobs with such sizes, at most as many GPUs as there are, always fit if the largest are placed first:
// whole nodes take empty nodes, and a power of two divides what larger ones leave of a node, if a node has a power of two.
func Sizes(nodes, perNode int) []int {
	var out []int
	for n := 1; n < perNode && nodes > 0; n *= 2 {
		out = append(out, n)
	}
	for n := 1; n <= nodes; n++ {
		out = append(out, n*perNode)
	}
	return out
}

// Total is what a choice is worth.
func Total(jobs [][]Config, choice []int) int64 {
	var sum int64
	for i, c := range choice {
		if c != None {
			sum += jobs[i][c].Value
		}
	}
	return sum
}
