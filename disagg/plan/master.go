package plan

import "math"

// master is the linear program that chooses multipliers from the plans seen: the weights of the
// loads (at least 0, their sum at most 1) and of the bytes beyond each memory (from 0 to most)
// under which the cheapest of those plans costs most. It is a matrix game, and the mixture is
// the other player's answer: shares of the requests for which each plan is used.
type master struct {
	resources, memories int
	most                float64
	rows                [][]float64 // of each plan, its loads, then its bytes beyond each memory
}

// solve returns the multipliers, the mixture and the value: no mixture of the plans seen takes
// less. The simplex method by Bland's rule, in a condensed tableau, from the origin.
func (m *master) solve() (weights, mixture []float64, value float64) {
	n := 1 + m.resources + m.memories // the value, then the multipliers
	rows := len(m.rows) + 1 + m.memories
	t := make([][]float64, rows+1) // the last row is the objective; the last column the right side
	for i := range t {
		t[i] = make([]float64, n+1)
	}
	for i, plan := range m.rows {
		t[i][0] = 1
		for j, x := range plan {
			t[i][1+j] = -x
		}
	}
	for j := range m.resources {
		t[len(m.rows)][1+j] = 1
	}
	t[len(m.rows)][n] = 1
	for j := range m.memories {
		r := len(m.rows) + 1 + j
		t[r][1+m.resources+j], t[r][n] = 1, m.most
	}
	t[rows][0] = -1
	column, row := make([]int, n), make([]int, rows) // which variable stands where; slacks from n
	for j := range column {
		column[j] = j
	}
	for i := range row {
		row[i] = n + i
	}
	pivots(t, column, row)
	weights, mixture = make([]float64, n-1), make([]float64, len(m.rows))
	for i, v := range row {
		if v >= 1 && v < n {
			weights[v-1] = max(0, t[i][n])
		}
	}
	for j, v := range column {
		if v >= n && v < n+len(m.rows) {
			mixture[v-n] = max(0, t[rows][j])
		}
	}
	return weights, mixture, t[rows][n]
}

// pivots runs the simplex method on a condensed tableau whose origin is feasible.
func pivots(t [][]float64, column, row []int) {
	const eps = 1e-11
	rows, n := len(t)-1, len(t[0])-1
	for range 20 * (rows + n) {
		enter := -1
		for j := range n {
			if t[rows][j] < -eps && (enter < 0 || column[j] < column[enter]) {
				enter = j
			}
		}
		if enter < 0 {
			return
		}
		leave, least := -1, math.Inf(1)
		for i := range rows {
			if t[i][enter] <= eps {
				continue
			}
			ratio := t[i][n] / t[i][enter]
			if ratio < least-eps || ratio < least+eps && (leave < 0 || row[i] < row[leave]) {
				leave, least = i, ratio
			}
		}
		if leave < 0 {
			return
		}
		pivot(t, leave, enter)
		column[enter], row[leave] = row[leave], column[enter]
	}
}

func pivot(t [][]float64, r, c int) {
	p := 1 / t[r][c]
	for j := range t[r] {
		t[r][j] *= p
	}
	t[r][c] = p
	for i := range t {
		f := t[i][c]
		if i == r || f == 0 {
			continue
		}
		for j := range t[i] {
			if j != c {
				t[i][j] -= f * t[r][j]
			}
		}
		t[i][c] = -f * p
	}
}
