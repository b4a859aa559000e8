// Package numeral finds the numbers in a text, in the ways in which people and programs write them.
package numeral

import (
	"math"
	"regexp"
	"strconv"
	"strings"
)

var numeral = regexp.MustCompile(`(?i)\d[\d_]*(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?[kmb]?`)

// In returns the numbers in a text, in order and without signs: 80000, 80_000, 80,000, 8e4 and 80k are the same one.
func In(text string) []float64 {
	var all []float64
	for _, at := range numeral.FindAllStringIndex(text, -1) {
		s := strings.NewReplacer("_", "", ",", "").Replace(strings.ToLower(text[at[0]:at[1]]))
		scale := 1.0
		if end := len(s) - 1; s[end] > '9' {
			if at[1] == len(text) || !letter(text[at[1]]) { // of 250ms the m is none
				scale = scales[s[end]]
			}
			s = s[:end]
		}
		if v, err := strconv.ParseFloat(s, 64); err == nil {
			all = append(all, v*scale)
		}
	}
	return all
}

var scales = map[byte]float64{'k': 1e3, 'm': 1e6, 'b': 1e9}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// Has says whether v is one of the numbers of a text, up to their last digits.
func Has(all []float64, v float64) bool {
	for _, n := range all {
		if math.Abs(n-v) <= 1e-9*math.Abs(v) {
			return true
		}
	}
	return false
}
