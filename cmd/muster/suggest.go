package main

import "strings"

// didYouMean returns ` (did you mean "x"?)` for the known name nearest to what
// was written, and nothing when none is near.
func didYouMean(written string, known []string) string {
	best, near := "", 1+len(written)/3
	for _, name := range known {
		if d := distance(strings.ToLower(written), strings.ToLower(name)); d <= near && (best == "" || d < near) {
			best, near = name, d
		}
	}
	if best == "" {
		return ""
	}
	return ` (did you mean "` + best + `"?)`
}

// distance is how many bytes must be added, removed or changed to turn a into b.
func distance(a, b string) int {
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
