// Package hostlist writes names of hosts as Slurm does.
package hostlist

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Format writes names as Slurm does: n-1, n-2, n-3 and m are "m,n-[1-3]".
// Names that differ in their last number alone are put together.
func Format(names []string) string {
	type pattern struct{ prefix, suffix string }
	type number struct {
		value  uint64
		digits string
	}
	numbers := map[pattern][]number{}
	var parts []string
	for _, name := range names {
		end := strings.LastIndexAny(name, "0123456789") + 1
		start := end
		for start > 0 && name[start-1] >= '0' && name[start-1] <= '9' {
			start--
		}
		v, err := strconv.ParseUint(name[start:end], 10, 64)
		if err != nil { // no number in it, or one too long to count with
			parts = append(parts, name)
			continue
		}
		p := pattern{name[:start], name[end:]}
		numbers[p] = append(numbers[p], number{v, name[start:end]})
	}
	for p, list := range numbers {
		slices.SortFunc(list, func(a, b number) int {
			return cmp.Or(cmp.Compare(len(a.digits), len(b.digits)), cmp.Compare(a.value, b.value))
		})
		list = slices.Compact(list)
		var ranges []string
		for i := 0; i < len(list); {
			j := i
			for j+1 < len(list) && list[j+1].value == list[j].value+1 && len(list[j+1].digits) == len(list[i].digits) {
				j++
			}
			r := list[i].digits
			if j > i {
				r += "-" + list[j].digits
			}
			ranges = append(ranges, r)
			i = j + 1
		}
		if len(list) == 1 {
			parts = append(parts, p.prefix+list[0].digits+p.suffix)
		} else {
			parts = append(parts, p.prefix+"["+strings.Join(ranges, ",")+"]"+p.suffix)
		}
	}
	slices.Sort(parts)
	return strings.Join(slices.Compact(parts), ",")
}
