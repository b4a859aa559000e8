package place

import "github.com/muster-sched/muster/core/cluster"

// price sets the worth of every free part of a device. Let requests for parts
// of a device come in sizes (milli-GPU, ascending) with demand. The linear
// programme "the fewest devices, each cut into some pattern of sizes, that meet
// the demand" has a dual price for each size; a free part is worth the most that
// sizes which fit into it fetch. An untouched device is worth nano, and less
// than that only loses where no request is for a part.
//
// The programme is solved by column generation: the simplex method over few
// patterns, new ones found as knapsacks. O(sizes^2) a step, some steps a size.
func (v *value) price(sizes []int, demand []float64) {
	prices := dualPrices(sizes, demand)
	most, _ := knapsack(sizes, prices)
	for f := range v.part {
		v.part[f] = int64(float64(most[f]*float64(nano)) + 0.5)
	}
	v.part[cluster.WholeGPU] = nano
}

// epsilon is below what prices are taken to be equal.
const epsilon = 1e-9

// dualPrices returns the price of each size.
func dualPrices(sizes []int, demand []float64) []float64 {
	n := len(sizes)
	// The basis starts with the patterns of one size only. inverse is the
	// inverse of the basis, used how many devices are cut by each pattern.
	inverse, used := make([][]float64, n), make([]float64, n)
	for i := range inverse {
		inverse[i] = make([]float64, n)
		copies := float64(int(cluster.WholeGPU) / sizes[i])
		inverse[i][i] = 1 / copies
		used[i] = demand[i] / copies
	}
	prices, column := make([]float64, n), make([]float64, n)
	for range 50 * (n + 1) {
		for j := range prices {
			prices[j] = 0
			for i := range inverse {
				prices[j] += inverse[i][j]
			}
		}
		most, pattern := knapsack(sizes, prices)
		if most[cluster.WholeGPU] <= 1+epsilon {
			break
		}
		if !enter(inverse, used, column, pattern) {
			break
		}
	}
	for j := range prices {
		prices[j] = max(prices[j], 0)
	}
	return prices
}

// enter brings a pattern into the basis, in place of the one that is used up
// first.
func enter(inverse [][]float64, used, column []float64, pattern []int) bool {
	out, least := -1, 0.0
	for i := range inverse {
		column[i] = 0
		for j, copies := range pattern {
			column[i] += float64(inverse[i][j] * float64(copies))
		}
		if column[i] > epsilon {
			if t := used[i] / column[i]; out < 0 || t < least {
				out, least = i, t
			}
		}
	}
	if out < 0 {
		return false
	}
	for i := range used {
		used[i] = max(0, used[i]-float64(least*column[i]))
	}
	used[out] = least
	for j := range inverse[out] {
		inverse[out][j] /= column[out]
	}
	for i := range inverse {
		if i == out {
			continue
		}
		for j := range inverse[i] {
			inverse[i][j] -= float64(column[i] * inverse[out][j])
		}
	}
	return true
}

// knapsack returns the most that sizes with prices fetch in every free amount
// up to a whole device, and how many of each do in a whole one.
func knapsack(sizes []int, prices []float64) (most [cluster.WholeGPU + 1]float64, pattern []int) {
	var last [cluster.WholeGPU + 1]int
	for f := 1; f < len(most); f++ {
		most[f], last[f] = most[f-1], -1
		for i, s := range sizes {
			if s > f {
				break
			}
			if w := most[f-s] + prices[i]; w > most[f]+epsilon/1000 {
				most[f], last[f] = w, i
			}
		}
	}
	pattern = make([]int, len(sizes))
	for f := len(most) - 1; f > 0; {
		if last[f] < 0 {
			f--
			continue
		}
		pattern[last[f]]++
		f -= sizes[last[f]]
	}
	return most, pattern
}
