package gputime

import (
	"math"
	"math/bits"
	"strconv"
)

// Amount is GPU time, in millionths of a GPU times nanoseconds: 128 bits, never negative.
type Amount struct{ hi, lo uint64 }

// String returns the amount as a decimal number.
func (a Amount) String() string {
	const group = 1e19 // the greatest power of ten in 64 bits
	if a.hi == 0 {
		return strconv.FormatUint(a.lo, 10)
	}
	high := a.hi / group
	middle, low := bits.Div64(a.hi%group, a.lo, group)
	text := strconv.FormatUint(low, 10)
	for len(text) < 19 {
		text = "0" + text
	}
	return Amount{high, middle}.String() + text
}

// ParseAmount reads a decimal number below 2^120, and returns false if it is none.
func ParseAmount(text string) (a Amount, ok bool) {
	for _, digit := range []byte(text) {
		if digit < '0' || digit > '9' || a.hi>>56 > 0 {
			return Amount{}, false
		}
		carry, low := bits.Mul64(a.lo, 10)
		a = Amount{a.hi*10 + carry, low}.add(Amount{0, uint64(digit - '0')})
	}
	return a, text != "" && a.hi>>56 == 0
}

// plus returns a + rate x time, neither of which is negative.
func (a Amount) plus(rate int64, time Time) Amount {
	hi, lo := bits.Mul64(uint64(rate), uint64(time))
	return a.add(Amount{hi, lo})
}

func (a Amount) add(b Amount) Amount {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, _ := bits.Add64(a.hi, b.hi, carry)
	return Amount{hi, lo}
}

// minus returns a - b, which is not greater.
func (a Amount) minus(b Amount) Amount {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, _ := bits.Sub64(a.hi, b.hi, borrow)
	return Amount{hi, lo}
}

// decayed returns a x decay / 2^32, rounded down.
func (a Amount) decayed() Amount {
	high, middle := bits.Mul64(a.hi, decay)
	carry, low := bits.Mul64(a.lo, decay)
	return Amount{high<<32 | middle>>32, middle << 32}.add(Amount{0, carry<<32 | low>>32})
}

// Over returns how long units take to receive the amount, rounded down, at most the longest time; 0 for no units.
func (a Amount) Over(units int64) Time {
	switch {
	case units <= 0:
		return 0
	case a.hi >= uint64(units):
		return math.MaxInt64
	}
	q, _ := bits.Div64(a.hi, a.lo, uint64(units))
	return Time(min(q, math.MaxInt64))
}

// GPUSeconds returns the amount in GPU-seconds, rounded, for people.
func (a Amount) GPUSeconds() float64 {
	return (float64(a.hi)*math.Exp2(64) + float64(a.lo)) / float64(PerGPU) / 1e9
}

// MostIndex is the greatest index.
const MostIndex = math.MaxInt64

// index returns received / deserved in billionths, rounded down. Both are first halved, rounded down, until
// deserved has 63 bits at most. Without anything deserved it is 0 if nothing was received, else the greatest.
func index(received, deserved Amount) int64 {
	if shift := 1 + bits.Len64(deserved.hi); deserved.hi > 0 || deserved.lo>>63 > 0 {
		received, deserved = received.halved(shift), deserved.halved(shift)
	}
	switch {
	case received == Amount{}:
		return 0
	case deserved.lo == 0 || received.hi>>33 > 0:
		return MostIndex
	}
	high, low := bits.Mul64(received.lo, billion)
	high += received.hi * billion // below 2^63, as received.hi is below 2^33
	if high >= deserved.lo {
		return MostIndex
	}
	q, _ := bits.Div64(high, low, deserved.lo)
	return int64(min(q, MostIndex))
}

const billion = 1_000_000_000

// IndexOne is the index of what has received just what it deserved.
const IndexOne = billion

// halved returns the amount halved so often, 1 to 65 times, rounded down.
func (a Amount) halved(times int) Amount {
	if times > 64 {
		return Amount{0, a.hi >> (times - 64)}
	}
	return Amount{a.hi >> times, a.hi<<(64-times) | a.lo>>times}
}
