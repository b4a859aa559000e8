package hostlist

import (
	"fmt"
	"strconv"
	"strings"
)

// mostNames bounds how many names a list may mean.
const mostNames = 100_000

// Parse returns the names that a list of Slurm means, in its order: "m,n-[1-3]" are m, n-1, n-2, n-3.
func Parse(list string) ([]string, error) {
	var out []string
	for rest := list; ; {
		// The first part ends with a comma that is in no bracket.
		end, depth := len(rest), 0
		for i, c := range rest {
			switch {
			case c == '[':
				depth++
			case c == ']':
				depth--
			case c == ',' && depth == 0:
				end = i
			}
			if end == i {
				break
			}
		}
		names, err := expand(rest[:end], mostNames-len(out))
		if err != nil {
			return nil, fmt.Errorf("expected nodes such as n1,n[2-4]: %w", err)
		}
		if out = append(out, names...); end == len(rest) {
			return out, nil
		}
		rest = rest[end+1:]
	}
}

// expand returns the names that one part means; more than most are an error.
func expand(part string, most int) ([]string, error) {
	prefix, rest, bracketed := strings.Cut(part, "[")
	if !bracketed {
		if part == "" || strings.ContainsAny(part, "] \t") {
			return nil, fmt.Errorf("found %q", part)
		}
		return []string{part}, nil
	}
	ranges, suffix, closed := strings.Cut(rest, "]")
	if !closed || strings.ContainsAny(ranges, "[") || strings.ContainsAny(suffix, "[]") {
		return nil, fmt.Errorf("found %q", part)
	}
	var out []string
	for r := range strings.SplitSeq(ranges, ",") {
		first, last, isRange := strings.Cut(r, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.ParseUint(first, 10, 31)
		to, err2 := strconv.ParseUint(last, 10, 31)
		if err1 != nil || err2 != nil || to < from {
			return nil, fmt.Errorf("found %q", part)
		}
		if to-from >= uint64(most-len(out)) {
			return nil, fmt.Errorf("found more than %d", mostNames)
		}
		for n := from; n <= to; n++ {
			out = append(out, fmt.Sprintf("%s%0*d%s", prefix, len(first), n, suffix))
		}
	}
	return out, nil
}
