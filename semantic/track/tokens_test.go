package track

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"
)

// A number is what strconv reads, however many digits it has and whatever follows it.
func TestQuantity(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	digits := func(most int) string {
		b := []byte{}
		for range 1 + rng.IntN(most) {
			b = append(b, byte('0'+rng.IntN(10)))
		}
		return string(b)
	}
	for range 20_000 {
		text := digits(12)
		if rng.IntN(2) == 0 {
			text += "." + digits(12)
		}
		if rng.IntN(2) == 0 {
			text += []string{"e", "E", "e-", "e+"}[rng.IntN(4)] + digits(2)
		}
		want, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		line := text + []string{"", " ", ", 5", "]", "%", "/3", ": 12", ":", ",", "<"}[rng.IntN(10)]
		if got, _ := tokens([]byte(line), nil); got[0].kind != number || got[0].value != want || int(got[0].to) != len(text) {
			t.Fatalf("%s: %+v, want %v", line, got[0], want)
		}
	}
	for _, c := range []struct {
		line string
		kind kind
	}{
		{"6,472", number}, {"2026-03-01", date}, {"10-20", span}, {"1.2.3", rounded}, {"10.0.0.1:80", rounded}, {"1:02:03.5", clock}, {"1:02:03:04", clock}, {"1e-40", number},
		{"1.5e-40", number}, {"12345678901234567890", number},
	} {
		if got, _ := tokens([]byte(c.line), nil); got[0].kind != c.kind || len(got) > 1 && c.kind != rounded {
			t.Errorf("%s: %+v", c.line, got)
		}
	}
	for range 1000 {
		d := time.Duration(rng.IntN(1e6)) * time.Second
		text := fmt.Sprintf("%d:%02d:%02d", int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60)
		if d < time.Hour {
			text = fmt.Sprintf("%02d:%02d", int(d.Minutes()), int(d.Seconds())%60)
		}
		if got, _ := tokens([]byte(text+"<"), nil); got[0].kind != clock || got[0].value != d.Seconds() {
			t.Fatalf("%s: %+v, want %v", text, got[0], d)
		}
	}
}
