package history

import (
	"math"
	"testing"
	"time"
)

// One job that no cluster ran would end the history of all others: times are compared, and written as JSON.
func TestCheck(t *testing.T) {
	good := Job{ID: "train", Submit: time.Unix(0, 0).UTC(), End: time.Unix(100, 0).UTC(), Outcome: Completed, GPUs: 8}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Job){
		"no id":                     func(j *Job) { j.ID = "" },
		"no end":                    func(j *Job) { j.End = time.Time{} },
		"an end in year 9999":       func(j *Job) { j.End = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC) },
		"submission in 1900":        func(j *Job) { j.Submit = time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC) },
		"too many GPUs":             func(j *Job) { j.GPUs = 1e308 },
		"GPUs that are no number":   func(j *Job) { j.GPUs = math.NaN() },
		"an escape sequence":        func(j *Job) { j.ID = "train\x1b[2J" },
		"a user in two lines":       func(j *Job) { j.User = "ann\nbob" },
		"a name from right to left": func(j *Job) { j.Name = "x\u202egpj" },
		"an unknown outcome":        func(j *Job) { j.Outcome = "lost" },
	} {
		j := good
		change(&j)
		if j.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
