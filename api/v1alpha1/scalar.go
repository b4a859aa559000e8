package v1alpha1

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/quota"
)

// Duration is a time that passes: a number of seconds, or numbers with the
// units ms, s, m, h and d, as in "90s", "1h30m" or "7d".
//
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:Format=""
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:XValidation:rule="type(self) == string || self >= 0 && self <= 3153600000",message="a number of seconds is 0 to 3153600000"
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^([0-9]{1,9}(\.[0-9]{1,3})?|([0-9]{1,4}(\.[0-9]{1,3})?d)?([0-9]{1,5}(\.[0-9]{1,3})?h)?([0-9]{1,6}(\.[0-9]{1,3})?m)?([0-9]{1,8}(\.[0-9]{1,3})?s)?([0-9]{1,9}ms)?)$`
type Duration int64 // nanoseconds, as core.Time

var errDuration = errors.New("a duration such as 90s, 30m, 2h or 7d, or a number of seconds")

// units of a duration, in the order in which String uses them.
var units = []struct {
	name string
	is   core.Time
}{
	{"d", 24 * 3600 * core.Second},
	{"h", 3600 * core.Second},
	{"m", 60 * core.Second},
	{"s", core.Second},
	{"ms", core.Second / 1000},
}

// UnmarshalText reads d. The error says what a duration looks like.
func (d *Duration) UnmarshalText(text []byte) error {
	s := string(text)
	if seconds, ok := decimal(s, int64(core.Second)); ok {
		*d = Duration(seconds)
		return d.check()
	}
	var sum int64
	for s != "" {
		number, unit, rest := cutUnit(s)
		part, ok := decimal(number, unitOf(unit))
		if !ok || part > maxDuration {
			return errDuration
		}
		sum = min(sum+part, maxDuration+1)
		s = rest
	}
	if len(text) == 0 {
		return errDuration
	}
	*d = Duration(sum)
	return d.check()
}

// MarshalJSON writes d as a string.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads d from a string or a number.
func (d *Duration) UnmarshalJSON(data []byte) error { return unmarshalScalar(data, d) }

// maxDuration bounds a duration, so that sums of times do not overflow: a
// hundred years.
const maxDuration = int64(100 * 365 * 24 * 3600 * core.Second)

func (d Duration) check() error {
	if d > Duration(maxDuration) {
		return errDuration
	}
	return nil
}

// cutUnit splits "1h30m" into "1", "h" and "30m".
func cutUnit(s string) (number, unit, rest string) {
	isDigit := func(r rune) bool { return r >= '0' && r <= '9' || r == '.' }
	end := strings.IndexFunc(s, func(r rune) bool { return !isDigit(r) })
	if end < 0 {
		return s, "", ""
	}
	number, s = s[:end], s[end:]
	if next := strings.IndexFunc(s, isDigit); next >= 0 {
		return number, s[:next], s[next:]
	}
	return number, s, ""
}

// unitOf returns the length of the unit, and 0 when there is no such unit.
func unitOf(name string) int64 {
	for _, u := range units {
		if u.name == name {
			return int64(u.is)
		}
	}
	return 0
}

// decimal returns the non-negative decimal number in s, times scale, when that
// is a whole number that fits.
func decimal(s string, scale int64) (int64, bool) {
	if s == "" || len(s) > 30 || scale == 0 || strings.Trim(s, "0123456789.") != "" {
		return 0, false
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return 0, false
	}
	r.Mul(r, new(big.Rat).SetInt64(scale))
	if !r.IsInt() || !r.Num().IsInt64() {
		return 0, false
	}
	return r.Num().Int64(), true
}

// MarshalText writes d as "1h30m".
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d Duration) String() string {
	var b strings.Builder
	left := core.Time(d)
	for _, u := range units {
		if n := left / u.is; n > 0 {
			b.WriteString(strconv.FormatInt(int64(n), 10) + u.name)
			left -= n * u.is
		}
	}
	if b.Len() == 0 {
		return "0s"
	}
	return b.String()
}

// GPUs is an amount of GPUs, written with up to three decimals; -1 is without limit. In
// Kubernetes, one with decimals is in quotes.
//
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:Format=""
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:MaxLength=13
// +kubebuilder:validation:XValidation:rule="type(self) == string || self >= -1 && self <= 1000000000",message="a number of GPUs is 0 to 1000000000, or -1 for no limit"
// +kubebuilder:validation:Pattern=`^(-1|[0-9]{1,9}(\.[0-9]{1,3})?)$`
type GPUs int64 // thousandths, as core.Milli

// NoLimit is the amount that has no limit, -1; endless is how it is written.
const (
	NoLimit = -GPUs(core.WholeGPU)
	endless = "-1"
)

var errGPUs = errors.New("a number of GPUs such as 8 or 0.5, or -1 for no limit")

// owned returns g as what a queue owns in the engine.
func (g GPUs) owned() core.Milli {
	if g < 0 {
		return quota.MaxQuota
	}
	return core.Milli(g)
}

// GPUsOwned is the inverse: what the engine says that a queue owns, or several do together.
func GPUsOwned(m core.Milli) GPUs {
	if m >= quota.MaxQuota {
		return NoLimit
	}
	return GPUs(m)
}

// maxGPUs bounds an amount, so that sums of amounts do not overflow.
const maxGPUs = 1e9 * GPUs(core.WholeGPU)

// UnmarshalText reads g. The error says what an amount looks like.
func (g *GPUs) UnmarshalText(text []byte) error {
	if string(text) == endless {
		*g = NoLimit
		return nil
	}
	milli, ok := decimal(string(text), int64(core.WholeGPU))
	if !ok || GPUs(milli) > maxGPUs {
		return errGPUs
	}
	*g = GPUs(milli)
	return nil
}

// MarshalJSON writes whole GPUs as a number, and parts as a string: the API of
// Kubernetes has no numbers with decimals here.
func (g GPUs) MarshalJSON() ([]byte, error) {
	if g%GPUs(core.WholeGPU) == 0 {
		return []byte(g.String()), nil
	}
	return json.Marshal(g.String())
}

// UnmarshalJSON reads g from a string or a number.
func (g *GPUs) UnmarshalJSON(data []byte) error { return unmarshalScalar(data, g) }

// MarshalText writes g as "1.5".
func (g GPUs) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

func (g GPUs) String() string { return core.Milli(g).GPUs() }

// unmarshalScalar reads v from the JSON of a string, a number or null, which
// changes nothing. encoding/json itself gives only strings to UnmarshalText.
func unmarshalScalar(data []byte, v encoding.TextUnmarshaler) error {
	if string(data) == "null" {
		return nil
	}
	text := string(data)
	if strings.HasPrefix(text, `"`) {
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
	}
	return v.UnmarshalText([]byte(text))
}

// ParseStaleGrace reads how long a gang may have too few pods, as a [core.Job] has it: a duration, never or, as
// in KAI, a negative duration for that. 0 is as soon as possible. The error says what is expected.
func ParseStaleGrace(text string) (core.Time, error) {
	amount, negative := strings.CutPrefix(text, "-")
	if text == "never" {
		return -1, nil
	}
	var d Duration
	if err := d.UnmarshalText([]byte(amount)); err != nil {
		return 0, fmt.Errorf("%q: expected %w, or never", text, err)
	}
	if negative {
		return -1, nil
	}
	return max(core.Time(d), 1), nil
}

// FormatStaleGrace is the inverse of [ParseStaleGrace].
func FormatStaleGrace(t core.Time) string {
	if t < 0 {
		return "never"
	}
	return Duration(t / 1e6 * 1e6).String()
}
