package workload

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/muster-sched/muster/core"
)

// ParseSuspension reads the column suspend of a job: PAUSE/RESUME/MIB, two times in seconds and the host memory of each pod's image.
func ParseSuspension(text string) (core.Suspension, error) {
	want := fmt.Errorf("PAUSE/RESUME/MIB, two times in seconds and the host memory of an image in MiB, such as 5/10/163840; found %q", text)
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return core.Suspension{}, want
	}
	pause, ok1 := parseDecimal([]byte(parts[0]), 9)
	resume, ok2 := parseDecimal([]byte(parts[1]), 9)
	mem, err := strconv.ParseInt(parts[2], 10, 64)
	s := core.Suspension{Pause: core.Time(pause), Resume: core.Time(resume), HostMemMiB: mem}
	if !ok1 || !ok2 || err != nil || s.Pause > Endless || s.Resume > Endless || mem < 1 || mem > maxMemMiB {
		return core.Suspension{}, want
	}
	return s, nil
}

// suspensionText is the column suspend of a job, as [ParseSuspension] reads it.
func suspensionText(s core.Suspension) string {
	if s.HostMemMiB == 0 {
		return ""
	}
	seconds := func(t core.Time) string { return strconv.FormatFloat(t.Seconds(), 'f', -1, 64) }
	return seconds(s.Pause) + "/" + seconds(s.Resume) + "/" + strconv.FormatInt(s.HostMemMiB, 10)
}
