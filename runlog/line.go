package runlog

import (
	"math/bits"
	"strconv"
	"unicode/utf8"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/sim"
)

// Ops of decisions.jsonl.gz.
const (
	opBind    = "bind"
	opRelease = "release"
	opMigrate = "migrate"
	opStandby = "standby"
	opResume  = "resume"
)

// appendLine appends a line of decisions.jsonl.gz. The job that an
// eviction was for is left out when empty, when it was decided if that was at t, and killed if
// the pod was not.
func appendLine(b []byte, t core.Time, op, job string, p *core.Placement, reason string, by sim.Eviction) []byte {
	b = append(b, `{"t":`...)
	b = appendSeconds(b, t)
	b = append(b, `,"op":"`...)
	b = append(b, op...)
	b = append(b, `","job":"`...)
	b = appendText(b, job)
	b = append(b, `","pod":"`...)
	b = appendText(b, job)
	b = append(b, '-')
	b = strconv.AppendInt(b, int64(p.Pod), 10)
	b = append(b, `","node":"`...)
	b = appendText(b, p.Node)
	b = append(b, `","gpus":[`...)
	b = appendSet(b, p.GPUs)
	b = append(b, `],"milli":`...)
	b = strconv.AppendInt(b, int64(p.GPU), 10)
	b = append(b, `,"cpu_milli":`...)
	b = strconv.AppendInt(b, p.CPUMilli, 10)
	b = append(b, `,"mem_mib":`...)
	b = strconv.AppendInt(b, p.MemMiB, 10)
	b = append(b, `,"reason":"`...)
	b = appendText(b, reason)
	b = append(b, '"')
	if by.For != "" {
		b = append(b, `,"for":"`...)
		b = appendText(b, by.For)
		b = append(b, '"')
	} else if reason != sim.Restarted.String() && reason != sim.Resized.String() {
		return append(b, "}\n"...)
	}
	if by.Told != t {
		b = append(b, `,"told":`...)
		b = appendSeconds(b, by.Told)
	}
	if by.Killed {
		b = append(b, `,"killed":true`...)
	}
	return append(b, "}\n"...)
}

// appendSet appends the members of a set of bits, lowest first.
func appendSet(b []byte, set uint64) []byte {
	for rest := set; rest != 0; rest &= rest - 1 {
		if rest != set {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(bits.TrailingZeros64(rest)), 10)
	}
	return b
}

// appendSeconds appends t in seconds, exactly and without trailing zeros.
func appendSeconds(b []byte, t core.Time) []byte {
	if t < 0 {
		b = append(b, '-')
		t = -t
	}
	b = strconv.AppendInt(b, int64(t/core.Second), 10)
	return appendFraction(b, int64(t%core.Second), int64(core.Second))
}

// appendGPUs appends m as a number of GPUs, exactly and without trailing zeros.
func appendGPUs(b []byte, m core.Milli) []byte {
	b = strconv.AppendInt(b, int64(m/core.WholeGPU), 10)
	return appendFraction(b, int64(m%core.WholeGPU), int64(core.WholeGPU))
}

// appendFraction appends the decimals of part/whole, where whole is a power of
// ten; nothing when part is 0.
func appendFraction(b []byte, part, whole int64) []byte {
	if part == 0 {
		return b
	}
	b = append(b, '.')
	for part > 0 {
		part *= 10
		b = append(b, byte('0'+part/whole))
		part %= whole
	}
	return b
}

// appendText appends s as the inside of a JSON string.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return appendEscaped(append(b, s[:i]...), s[i:])
		}
	}
	return append(b, s...)
}

func appendEscaped(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	for _, r := range s { // bytes that are not UTF-8 become U+FFFD
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return b
}
