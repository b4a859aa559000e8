package eventlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/workload"
)

// line is any line.
type line struct {
	T     *core.Time
	Begin *Header
	Pass  []decision
	events
}

// events has a field for each type of event, with the name of the type.
type events struct {
	NodeAdded        *core.NodeAdded
	NodeChanged      *core.NodeChanged
	NodeLost         *core.NodeLost
	NodeCordoned     *core.NodeCordoned
	DeviceHealth     *core.DeviceHealth
	QueueSet         *core.QueueSet
	QueueRemoved     *core.QueueRemoved
	JobSubmitted     *core.JobSubmitted
	PodRunning       *core.PodRunning
	JobSuspended     *core.JobSuspended
	PodsAdded        *core.PodsAdded
	PodEnded         *core.PodEnded
	GangStale        *core.GangStale
	PodsGone         *core.PodsGone
	BindFailed       *core.BindFailed
	MoveRequested    *core.MoveRequested
	RestartRequested *core.RestartRequested
	PodMoved         *core.PodMoved
	MoveFailed       *core.MoveFailed
	StandbyBegan     *core.StandbyBegan
	StandbyEnded     *core.StandbyEnded
	JobDiagnosed     *core.JobDiagnosed
	JobReleased      *core.JobReleased
	NodeTested       *core.NodeTested
	FailuresFound    *core.FailuresFound
	JobEnded         *core.JobEnded
	JobRelabelled    *core.JobRelabelled
	JobShielded      *core.JobShielded
	JobEstimated     *core.JobEstimated
	JobMeasured      *core.JobMeasured
	JobSlowed        *core.JobSlowed
	Checkpointed     *core.Checkpointed
	GPUTimeCounted   *core.GPUTimeCounted
	Tick             *core.Tick
}

// early is a line of older logs, which record labels and affinities once per job, for all
// of its tasks; tasks that were added later have none.
type early struct {
	T            *core.Time
	JobSubmitted struct {
		Job struct {
			core.Job
			Labels   []string
			Affinity []core.Term
		}
	}
}

// line converts it to the line of the current format.
func (e *early) line() line {
	j := &e.JobSubmitted.Job
	for i := range j.Tasks {
		j.Tasks[i].Labels, j.Tasks[i].Affinity = j.Labels, j.Affinity
	}
	return line{T: e.T, events: events{JobSubmitted: &core.JobSubmitted{Job: j.Job}}}
}

var (
	ops     = map[string]core.Op{}
	reasons = map[string]core.Reason{}
)

func init() {
	for op, name := range core.Ops {
		ops[name] = core.Op(op)
	}
	for r := core.Placed; r <= core.StandbyReturns; r++ {
		reasons[r.String()] = r
	}
}

// parse reads a line. The error has neither file nor line.
func parse(text []byte) (Entry, *workload.Error) {
	wrong := func(field, format string, args ...any) (Entry, *workload.Error) {
		return Entry{}, &workload.Error{Field: field, Want: fmt.Sprintf(format, args...)}
	}
	var l line
	in, err := decode(text, &l)
	if before := (early{}); err != nil {
		if again, e := decode(text, &before); e == nil {
			in, l, err = again, before.line(), nil
		}
	}
	if err == nil {
		if _, err = in.Token(); err == nil {
			return wrong("", "one JSON object a line, found more")
		}
		err = nil
	}
	if kind := (*json.UnmarshalTypeError)(nil); errors.As(err, &kind) {
		return wrong(fieldOf(kind.Field), "a value of type %s, found a %s", kind.Type, kind.Value)
	}
	if field, ok := strings.CutPrefix(fmt.Sprint(err), "json: unknown field "); ok {
		return wrong("", "a line of version %d, found the unknown field %s", Version, field)
	}
	if err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the line ends in it")
		}
		return wrong("", "a JSON object: %v", err)
	}
	if l.T == nil {
		return wrong("t", "the time in nanoseconds, found nothing")
	}
	e := Entry{Now: *l.T, Begin: l.Begin}
	found := 0
	if l.Begin != nil {
		found++
		if err := checkHeader(l.Begin); err != nil {
			return Entry{}, err
		}
	}
	if l.Pass != nil {
		found++
		e.Pass = true
		for i := range l.Pass {
			d := &l.Pass[i]
			op, ok := ops[d.Op]
			if !ok {
				return wrong("pass.op", "a decision, found %q", d.Op)
			}
			reason, ok := reasons[d.Reason]
			if !ok {
				return wrong("pass.reason", "a reason, found %q", d.Reason)
			}
			e.Decided = append(e.Decided, core.Decision{
				Op: op, Job: d.Job, Node: d.Node, Pods: d.Pods, Reason: reason, Detail: d.Detail, For: d.For, At: d.At,
			})
		}
	}
	for v, i := reflect.ValueOf(&l.events).Elem(), 0; i < v.NumField(); i++ {
		if f := v.Field(i); !f.IsNil() {
			found++
			e.Event = f.Elem().Interface().(core.Event)
		}
	}
	if found != 1 {
		return wrong("", "one of begin, pass and an event together with t, found %d of them", found)
	}
	return e, nil
}

// decode reads the first JSON object of a line, and ignores what follows.
func decode(text []byte, to any) (*json.Decoder, error) {
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	return in, in.Decode(to)
}

// fieldOf spells the way to a field as lines do: encoding/json names the fields
// of Go, and the structs whose fields have no name before them.
func fieldOf(way string) string {
	var parts []string
	for part := range strings.SplitSeq(way, ".") {
		switch _, isEvent := reflect.TypeFor[events]().FieldByName(part); {
		case part == "events" || part == "Request":
		case isEvent:
			parts = append(parts, part)
		default:
			parts = append(parts, key(part))
		}
	}
	return strings.Join(parts, ".")
}

// checkHeader finds values that the engine does not accept.
func checkHeader(h *Header) *workload.Error {
	wrong := func(field, format string, args ...any) *workload.Error {
		return &workload.Error{Field: "begin." + field, Want: fmt.Sprintf(format, args...)}
	}
	p := &h.Policy
	switch {
	case h.Version != Version:
		return wrong("version", "%d, found %d", Version, h.Version)
	case h.Part < 1 || h.Snapshot < 0:
		return wrong("part", "a number of at least 1, and a snapshot of at least 0 lines; found %d and %d", h.Part, h.Snapshot)
	case p.Queueing.Mode > core.Backfill:
		return wrong("policy.queueing.mode", "a number, at most %d, found %d", core.Backfill, uint8(p.Queueing.Mode))
	case int(p.Queueing.Order) >= len(core.Orders):
		return wrong("policy.queueing.order", "a number, at most %d, found %d", len(core.Orders)-1, uint8(p.Queueing.Order))
	case int(p.Fairness.Jobs) >= len(core.Orders):
		return wrong("policy.fairness.jobs", "a number, at most %d, found %d", len(core.Orders)-1, uint8(p.Fairness.Jobs))
	}
	if p.Models > core.LeastWanted {
		return wrong("policy.models", "a number, at most %d, found %d", core.LeastWanted, uint8(p.Models))
	}
	if p.Preempt.Victims > core.RandomVictims {
		return wrong("policy.preempt.victims", "a number, at most %d, found %d", core.RandomVictims, uint8(p.Preempt.Victims))
	}
	for _, s := range p.Placement {
		if int(s) >= len(place.Strategies) {
			return wrong("policy.placement", "numbers below %d, found %d", len(place.Strategies), uint8(s))
		}
	}
	if _, err := core.New(core.Config{Levels: h.Levels}); err != nil {
		return wrong("levels", "%v", err)
	}
	return nil
}
