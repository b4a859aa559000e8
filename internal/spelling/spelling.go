// Package spelling finds the word that was probably meant.
package spelling

import "strings"

// Nearest returns the known name nearest to what was written, whatever the case, and
// nothing when none is near, or has nothing of it.
func Nearest(written string, known []string) string {
	best, near := "", 1+len(written)/3
	for _, name := range known {
		if d := Distance(strings.ToLower(written), strings.ToLower(name)); d <= near && d < len(written) && (best == "" || d < near) {
			best, near = name, d
		}
	}
	return best
}

// Distance is how many bytes must be added, removed or changed to turn a into b (Levenshtein).
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
