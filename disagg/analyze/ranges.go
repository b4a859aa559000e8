package analyze

import (
	"cmp"
	"slices"
)

// Range is addresses from From to before To.
type Range struct{ From, To uint64 }

// normal sorts ranges and joins those that touch; empty ones go.
func normal(all []Range) []Range {
	all = slices.DeleteFunc(slices.Clone(all), func(r Range) bool { return r.From >= r.To })
	slices.SortFunc(all, func(a, b Range) int { return cmp.Compare(a.From, b.From) })
	out := all[:0]
	for _, r := range all {
		if n := len(out); n > 0 && out[n-1].To >= r.From {
			out[n-1].To = max(out[n-1].To, r.To)
		} else {
			out = append(out, r)
		}
	}
	return out
}

// size is the bytes of normal ranges.
func size(all []Range) (n uint64) {
	for _, r := range all {
		n += r.To - r.From
	}
	return n
}

// overlap reports whether two normal lists share a byte.
func overlap(a, b []Range) bool {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0].To <= b[0].From:
			a = a[1:]
		case b[0].To <= a[0].From:
			b = b[1:]
		default:
			return true
		}
	}
	return false
}

// without returns what of a normal list is not in a range.
func without(all []Range, r Range) []Range {
	if r.From >= r.To {
		return all
	}
	return intersect(all, outside(r.From, r.To-r.From))
}

// nobody wrote a byte: it is what it was before the trace.
const nobody = -1

// owners says for each byte which node wrote it last: segments in order, that do not overlap.
// Bytes in no segment were written by nobody.
type owners []owned

type owned struct {
	Range
	by int
}

// of calls f for the parts of a range by owner, in order, those of nobody included.
func (o owners) of(r Range, f func(part Range, by int)) {
	i, _ := slices.BinarySearchFunc(o, r.From, func(s owned, a uint64) int {
		if s.To <= a {
			return -1
		}
		return 1
	})
	for at := r.From; at < r.To; i++ {
		if i >= len(o) || o[i].From >= r.To {
			f(Range{at, r.To}, nobody)
			return
		}
		if o[i].From > at {
			f(Range{at, o[i].From}, nobody)
			at = o[i].From
		}
		end := min(o[i].To, r.To)
		f(Range{at, end}, o[i].by)
		at = end
	}
}

// set makes by the owner of a range. What is left of segments at its ends stays.
func (o *owners) set(r Range, by int) {
	if r.From >= r.To {
		return
	}
	all := *o
	i, _ := slices.BinarySearchFunc(all, r.From, func(s owned, a uint64) int {
		if s.To <= a {
			return -1
		}
		return 1
	})
	var with []owned
	if i < len(all) && all[i].From < r.From {
		with = append(with, owned{Range{all[i].From, r.From}, all[i].by})
	}
	if by != nobody {
		with = append(with, owned{r, by})
	}
	j := i
	for j < len(all) && all[j].From < r.To {
		j++
	}
	if j > i && all[j-1].To > r.To {
		with = append(with, owned{Range{r.To, all[j-1].To}, all[j-1].by})
	}
	*o = slices.Replace(all, i, j, with...)
}
