package track

import (
	"math/rand/v2"
	"testing"
)

// The spelling of a word, eight letters at a time, is that of one letter after the other.
func TestSpell(t *testing.T) {
	const characters = "abzABZmM@[`{_09 \xc3\xa9\xff"
	rng := rand.New(rand.NewPCG(1, 1))
	for range 100_000 {
		text := make([]byte, 1+rng.IntN(40))
		for i := range text {
			text[i] = characters[rng.IntN(6)]
			if rng.IntN(10) == 0 {
				text[i] = characters[rng.IntN(len(characters))]
			}
		}
		var want spelling
		n := 0
		for ; n < len(text) && letter(text[n]) && !(n > 0 && text[n] < 'a' && text[n-1] >= 'a'); n++ {
			if n < longest {
				want[n/8] |= uint64(text[n]|0x20) << (8 * (n % 8))
			}
		}
		if got, m := spell(text); got != want || m != n {
			t.Fatalf("%q: %x of %d letters, want %x of %d", text, got, m, want, n)
		}
	}
}
