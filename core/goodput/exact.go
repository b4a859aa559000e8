package goodput

// Exact returns for each job the index of its configuration, or [None], so that the sum of their values is the largest that free
// GPUs of each model allow. Among equal sums the first job has its first possible configuration, none being last; then the
// second job, and so on. It takes one sum for each configuration and each of the [States], which must not be 0, and two bytes
// for each job and state. A job has at most 32,767 configurations.
func Exact(free []int, jobs [][]Config) []int {
	states := States(free)
	if states == 0 {
		panic("goodput: more states than there are numbers")
	}
	strides := make([]int, len(free))
	for m, s := 0, 1; m < len(free); m++ {
		strides[m], s = s, s*(free[m]+1)
	}

	// best[s] is the most that jobs i, i+1, … are worth on what state s has free; then has that of those behind i.
	best, then := make([]int64, states), make([]int64, states)
	picks := make([][]int16, len(jobs))
	for i := len(jobs) - 1; i >= 0; i-- {
		best, then = then, best
		pick := make([]int16, states)
		for s := range best {
			best[s], pick[s] = -1, None
		}
		for c, o := range jobs[i] {
			if o.Value > 0 && o.GPUs <= free[o.Model] {
				improve(best, then, pick, int16(c), o, strides[o.Model], free[o.Model])
			}
		}
		for s, v := range then {
			if v > best[s] {
				best[s], pick[s] = v, None
			}
		}
		picks[i] = pick
	}

	choice := make([]int, len(jobs))
	s := states - 1 // all is free
	for i := range jobs {
		c := int(picks[i][s])
		if choice[i] = c; c != None {
			s -= jobs[i][c].GPUs * strides[jobs[i][c].Model]
		}
	}
	return choice
}

// improve takes a configuration wherever its model has enough GPUs, and it is better than those before it. States that differ in
// what is free of the model alone are stride apart.
func improve(best, then []int64, pick []int16, c int16, o Config, stride, free int) {
	need, block := o.GPUs*stride, (free+1)*stride
	for from := 0; from < len(best); from += block {
		to, rest := best[from+need:from+block], then[from:from+block-need]
		p := pick[from+need : from+block]
		for k, v := range rest {
			if v += o.Value; v > to[k] {
				to[k], p[k] = v, c
			}
		}
	}
}
