package history

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/muster-sched/muster/semantic/embed"
	"github.com/muster-sched/muster/semantic/metadata"
)

// Job is a job that has ended, or, as far as it is known then, one that is submitted.
type Job struct {
	// ID is unique: a job that is appended again replaces the older one.
	ID      string `json:"id"`
	Name    string `json:"name,omitempty"`
	User    string `json:"user,omitempty"`
	Tenant  string `json:"tenant,omitempty"` // its queue
	Command string `json:"command,omitempty"`

	Submit time.Time `json:"submit"`
	Start  time.Time `json:"start,omitzero"`
	End    time.Time `json:"end,omitzero"`
	// Ran is how long it ran: less than from Start to End if it was interrupted.
	Ran     time.Duration `json:"ran_ns,omitempty"`
	Outcome Outcome       `json:"outcome"`

	GPUs  float64 `json:"gpus,omitempty"`      // of all pods together
	Model string  `json:"gpu_model,omitempty"` // of its GPUs
	// SMUse is the mean share (0 to 1) of its GPUs' SMs that it used, MemoryMiB its largest use of a GPU's memory; 0 when unknown.
	SMUse     float64 `json:"sm_use,omitempty"`
	MemoryMiB int64   `json:"memory_mib,omitempty"`

	// Labels is what else was known when it was submitted.
	Labels   map[string]string `json:"labels,omitempty"`
	Metadata metadata.Job      `json:"metadata,omitzero"`
}

// Outcome is how a job ended.
type Outcome string

// Outcomes.
const (
	Completed Outcome = "completed"
	Failed    Outcome = "failed"
	Cancelled Outcome = "cancelled"
)

// Check returns what is wrong with a job that ended.
func (j *Job) Check() error {
	for _, f := range []struct{ name, value string }{{"id", j.ID}, {"name", j.Name}, {"user", j.User}, {"tenant", j.Tenant}, {"gpu_model", j.Model}} {
		if strings.ContainsFunc(f.value, unshown) {
			return fmt.Errorf("%s: expected no control characters; found %+q", f.name, f.value)
		}
	}
	return j.valid()
}

// unshown reports whether a character steers a terminal.
func unshown(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

// valid is Check without a look at characters, which jobs of an older history may have.
func (j *Job) valid() error {
	switch {
	case j.ID == "":
		return fmt.Errorf("a finished job needs an id")
	case j.End.IsZero():
		return fmt.Errorf("job %s: a finished job needs a time of its end", j.ID)
	case outside(j.End), !j.Submit.IsZero() && outside(j.Submit), !j.Start.IsZero() && outside(j.Start):
		return fmt.Errorf("job %s: expected times from 1970 to 2200", j.ID)
	case j.Ran < 0:
		return fmt.Errorf("job %s: it ran for %v: expected at least 0", j.ID, j.Ran)
	case j.Outcome != Completed && j.Outcome != Failed && j.Outcome != Cancelled:
		return fmt.Errorf("job %s: outcome %q is none of completed, failed, cancelled", j.ID, j.Outcome)
	case !(j.SMUse >= 0 && j.SMUse <= 1): // NaN, too
		return fmt.Errorf("job %s: an SM use of %g: expected 0 to 1", j.ID, j.SMUse)
	case !(j.GPUs >= 0 && j.GPUs <= 1e6) || j.MemoryMiB < 0:
		return fmt.Errorf("job %s: %g GPUs and %d MiB: expected at least 0, and at most a million GPUs", j.ID, j.GPUs, j.MemoryMiB)
	}
	return nil
}

// outside reports whether no cluster was there at a time.
func outside(t time.Time) bool { return t.Year() < 1970 || t.Year() > 2200 }

// Fields returns what jobs are compared by.
func (j *Job) Fields() []embed.Field {
	var fields []embed.Field
	add := func(name, value string) {
		if value != "" {
			fields = append(fields, embed.Field{Name: name, Value: value})
		}
	}
	gpus := j.GPUs
	if gpus == 0 {
		gpus = float64(j.Metadata.Training.GPUs)
	}
	add("name", stable(j.Name))
	add("user", j.User)
	add("tenant", j.Tenant)
	add("command", stableCommand(j.Command))
	if gpus > 0 {
		add("gpus", strconv.FormatFloat(gpus, 'g', -1, 64))
	}
	add("gpu_model", j.Model)
	for _, name := range slices.Sorted(maps.Keys(j.Labels)) {
		add(name, j.Labels[name])
	}
	for _, f := range j.Metadata.Fields() {
		if name, value, _ := strings.Cut(f, "="); name != "gpus" {
			add(name, value)
		}
	}
	return fields
}

// series is the same for the runs of one recurring job: those of a user with the same name, or without a name the same command,
// on as many GPUs of the same model, which train the same model for as long. It is empty if nothing names the job.
func (j *Job) series() string {
	name, command := stable(j.Name), stableCommand(j.Command)
	if name == "" && command == "" {
		return ""
	}
	m := &j.Metadata
	return strings.Join([]string{
		j.Tenant, j.User, name, command, strconv.FormatFloat(j.GPUs, 'g', -1, 64), j.Model,
		m.Model.Name, m.Dataset.Train, strconv.FormatInt(m.Training.Iterations, 10), string(m.Training.Unit),
	}, "\x00")
}

// stable returns a name without what differs from run to run: numbers, dates and random parts between separators. It keeps
// "resnet50" and "v2". A name of numbers and words such as "job" only names nothing.
func stable(name string) string {
	name = strings.ToLower(name)
	separator := func(r rune) bool { return strings.ContainsRune("-_./:@ ", r) }
	var kept []string
	says := false
	for _, part := range strings.FieldsFunc(uuid.ReplaceAllString(name, "-"), separator) {
		if !random(part) {
			kept = append(kept, part)
			says = says || !slices.Contains(anyJob, part)
		}
	}
	if !says {
		return ""
	}
	return strings.Join(kept, "-")
}

// anyJob has the words by which people call any job.
var anyJob = []string{"job", "jobs", "run", "task", "train", "training", "trainer", "test", "debug", "exp", "experiment", "pod", "worker", "master", "launcher"}

var uuid = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// random reports whether a part of a name is a number, a hash, or what Kubernetes appends to names.
func random(part string) bool {
	digits, hex, kube := 0, 0, 0
	for _, r := range part {
		if r >= '0' && r <= '9' {
			digits++
		}
		if strings.ContainsRune("0123456789abcdef", r) {
			hex++
		}
		if strings.ContainsRune("bcdfghjklmnpqrstvwxz2456789", r) { // the alphabet of its random names
			kube++
		}
	}
	n := len(part)
	switch {
	case digits == n:
		return true
	case n >= 7 && hex == n && digits > 0:
		return true
	}
	return n == 5 && kube == n && digits > 0
}

// perRun has the flags of commands whose value differs from run to run and says nothing about how long a job takes.
var perRun = []string{"seed", "random-seed", "output", "output-dir", "out", "out-dir", "log-dir", "logdir", "run-name", "run-id", "exp-name", "name", "port", "master-port", "master-addr", "rdzv-id", "rdzv-endpoint", "resume", "node-rank"}

// stableCommand returns a command without the values of such flags.
func stableCommand(command string) string {
	var kept []string
	skip := false
	for _, word := range strings.Fields(command) {
		if skip {
			skip = false
			if !strings.HasPrefix(word, "-") {
				continue
			}
		}
		flag, _, assigned := strings.Cut(word, "=")
		name := strings.ReplaceAll(strings.TrimLeft(flag, "-+"), "_", "-")
		for _, p := range perRun {
			if name == p && flag != word || name == p && strings.HasPrefix(word, "-") {
				word, skip = flag, !assigned
				break
			}
		}
		kept = append(kept, word)
	}
	return strings.Join(kept, " ")
}
