package goodput

// Rounds in which [Priced] looks for prices, and the parts of the prices at which it then gives away what is left.
const (
	priceRounds = 8
	fillParts   = 16
)

// Priced returns a choice like [Exact] that may be worth less, and a bound above which no choice is worth. Each model has a price
// for a GPU, and each job takes the configuration whose value is furthest above its price (Lagrange). The prices are the lowest
// at which jobs take no more GPUs than are free, each found by bisection with the others as they are. What is left then goes to the
// jobs in order, at falling prices. It takes about 40 looks at each configuration a round.
func Priced(free []int, jobs [][]Config) (choice []int, bound int64) {
	p := newPricing(free, jobs)
	for range priceRounds {
		changed := false
		for m := range free {
			changed = p.reprice(m, 0) || changed
		}
		if !changed {
			break
		}
	}
	bound = p.bound()
	for p.over() {
		// A price that rises makes jobs turn to other models, so the prices may rise in turns: by steps of a share, so that this ends soon.
		for m := range free {
			if p.taken[m] > free[m] {
				p.reprice(m, p.prices[m]+p.prices[m]/256+1)
			}
		}
		bound = min(bound, p.bound())
	}
	return p.fill(), bound
}

// pricing is the search for prices.
type pricing struct {
	free   []int
	jobs   [][]Config
	prices []int64 // of a GPU, by model
	dear   int64   // at this price nothing is taken
	taken  []int   // by model
}

func newPricing(free []int, jobs [][]Config) *pricing {
	p := &pricing{free: free, jobs: jobs, prices: make([]int64, len(free)), taken: make([]int, len(free))}
	for _, j := range jobs {
		for _, c := range j {
			p.dear = max(p.dear, c.Value)
		}
	}
	return p
}

// take returns the configuration of a job that is furthest above its price, the smallest if there are several; None if none is above it.
func (p *pricing) take(i int) int {
	best, most := None, int64(0)
	for c := range p.jobs[i] {
		o := &p.jobs[i][c]
		if o.Value <= 0 || o.GPUs > p.free[o.Model] {
			continue
		}
		rest := o.Value - p.prices[o.Model]*int64(o.GPUs)
		if rest > most || rest == most && best != None && o.GPUs < p.jobs[i][best].GPUs {
			best, most = c, rest
		}
	}
	return best
}

// count counts what the jobs take of each model.
func (p *pricing) count() {
	clear(p.taken)
	for i := range p.jobs {
		if c := p.take(i); c != None {
			p.taken[p.jobs[i][c].Model] += p.jobs[i][c].GPUs
		}
	}
}

// over reports whether the jobs take more than is free of a model.
func (p *pricing) over() bool {
	p.count()
	for m, n := range p.taken {
		if n > p.free[m] {
			return true
		}
	}
	return false
}

// reprice sets the price of a model to the lowest one, at least low, at which the jobs take no more of it than is free. It reports whether
// that is another one.
func (p *pricing) reprice(m int, low int64) bool {
	was, high := p.prices[m], max(low, p.dear)
	for low < high {
		p.prices[m] = low + (high-low)/2
		if p.count(); p.taken[m] > p.free[m] {
			low = p.prices[m] + 1
		} else {
			high = p.prices[m]
		}
	}
	p.prices[m] = high
	return high != was
}

// bound returns what no choice is worth more than: what is free at its prices, and what each job has above them.
func (p *pricing) bound() int64 {
	var sum int64
	for m, n := range p.free {
		sum += p.prices[m] * int64(n)
	}
	for i := range p.jobs {
		if c := p.take(i); c != None {
			o := &p.jobs[i][c]
			sum += o.Value - p.prices[o.Model]*int64(o.GPUs)
		}
	}
	return sum
}

// fill returns what the jobs take, and gives them what is left: at falling prices, so that those come first to which it is worth most.
func (p *pricing) fill() []int {
	choice := make([]int, len(p.jobs))
	left := append([]int(nil), p.free...)
	for i := range p.jobs {
		if choice[i] = p.take(i); choice[i] != None {
			left[p.jobs[i][choice[i]].Model] -= p.jobs[i][choice[i]].GPUs
		}
	}
	for part := int64(fillParts - 1); part >= 0; part-- {
		for i := range p.jobs {
			p.raise(i, choice, left, part)
		}
	}
	return choice
}

// raise gives a job a configuration that is worth more than the one it has, even at that part of the prices, if there is room for it.
func (p *pricing) raise(i int, choice, left []int, part int64) {
	now := Config{}
	if choice[i] != None {
		now = p.jobs[i][choice[i]]
		left[now.Model] += now.GPUs
	}
	at := func(o Config) int64 { return o.Value - p.prices[o.Model]*part/fillParts*int64(o.GPUs) }
	best, most := choice[i], int64(0)
	if best != None {
		most = at(now)
	}
	for c, o := range p.jobs[i] {
		if o.Value > now.Value && o.GPUs <= left[o.Model] && at(o) > most {
			best, most = c, at(o)
		}
	}
	if choice[i] = best; best != None {
		left[p.jobs[i][best].Model] -= p.jobs[i][best].GPUs
	}
}
