package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/kube/tables"
	"github.com/muster-sched/muster/kube/translate"
)

// Move is a move of a plan for a live cluster, or the restart of a pod.
type Move struct {
	core.Migration
	// Namespace, Name and UID are those of the pod.
	Namespace, Name string
	UID             types.UID
	// With is how many pods of the job go elsewhere by the same restart, 0 for a move.
	With int
}

// Plan is a plan for a live cluster, with the pods.
type Plan struct {
	core.Migrations
	// Moves and Restarts are those of the Migrations, in their order.
	Moves, Restarts []Move
}

// Consolidation returns the moves by which the engine would vacate nodes now and, if the policy in use
// lets scheduled plans restart jobs, the restarts.
func (s *Survey) Consolidation(d core.Defrag) Plan { return s.named(s.engine.Consolidation(d)) }

// RoomFor returns the moves after which a job that waits could start or, if there are none and the
// policy in use lets jobs restart, a plan with restarts. The job is named as for [Client.Explain].
func (s *Survey) RoomFor(namespace, name string, d core.Defrag) (Plan, error) {
	job, err := s.waiting(namespace, name)
	if err != nil {
		return Plan{}, err
	}
	plan, _, err := s.engine.RoomFor(job, d, s.Policy().Room.Restarts)
	if err != nil {
		return Plan{}, err
	}
	return s.named(plan), nil
}

// Policy returns the policy in use.
func (s *Survey) Policy() *core.Policy { return s.mirror.Policies.Policy() }

// waiting finds the engine's job that users name so.
func (s *Survey) waiting(namespace, name string) (string, error) {
	if parts := strings.SplitN(name, "/", 3); len(parts) == 3 {
		namespace, name = parts[0], parts[1]+"/"+parts[2]
	}
	var found []string
	for _, g := range s.mirror.Groups {
		if g.ID.Namespace != namespace || g.ID.Kind == tables.Foreign {
			continue
		}
		of := func(p *tables.Pod) bool {
			o := p.Object.Owner
			return p.Object.Name == name || "pod/"+p.Object.Name == name || o != nil && strings.ToLower(o.Kind)+"/"+o.Name == name
		}
		if g.ID.Name == name || g.ID.String() == name || len(tables.InOrder(g.Pods, of)) > 0 {
			found = append(found, g.Job)
		}
	}
	switch slices.Sort(found); len(found) {
	case 0:
		return "", &NoJobError{Namespace: namespace, Name: name}
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%q is ambiguous: name one of %s", name, strings.Join(found, ", "))
}

// named adds the pods to a plan.
func (s *Survey) named(plan core.Migrations) Plan {
	name := func(list []core.Migration) []Move {
		out := make([]Move, len(list))
		for i, x := range list {
			o := s.mirror.Jobs[x.Job].Slots[x.Pod].Object
			out[i] = Move{Migration: x, Namespace: o.Namespace, Name: o.Name, UID: o.UID}
		}
		return out
	}
	return Plan{plan, name(plan.Moves), name(plan.Restarts)}
}

// Requests returns what [Client.Apply] is to request of the scheduler: the moves and restarts in their
// waves or, if room is made for a job, the moves in their waves, then the restarts of one job after the
// other. An error says that a restart cannot be requested: of pods that only change their GPUs.
func (p *Plan) Requests() ([]Move, error) {
	if p.Needed == 0 {
		return p.inWaves(), nil
	}
	out := slices.Clone(p.Moves)
	wave := 0
	if len(out) > 0 {
		wave = out[len(out)-1].Wave + 1
	}
	for i := 0; i < len(p.Restarts); wave++ {
		job, from := p.Restarts[i].Job, len(out)
		for ; i < len(p.Restarts) && p.Restarts[i].Job == job; i++ {
			if x := p.Restarts[i]; x.From != x.To {
				x.Wave = wave
				out = append(out, x)
			}
		}
		for k := range out[from:] {
			out[from+k].With = len(out) - from
		}
		if len(out) == from {
			return nil, fmt.Errorf("job %s restarts on other GPUs of its nodes, which cannot be requested; a policy with room makes such plans by itself", job)
		}
	}
	return out, nil
}

// inWaves returns the requests of a plan that vacates nodes.
func (p *Plan) inWaves() []Move {
	with := map[string]int{}
	elsewhere := func(x *Move) bool { return x.From != x.To } // the others come back with their gang
	for i := range p.Restarts {
		if x := &p.Restarts[i]; elsewhere(x) {
			with[x.Job]++
		}
	}
	out := slices.Clone(p.Moves)
	for _, x := range p.Restarts {
		if elsewhere(&x) {
			x.With = with[x.Job]
			out = append(out, x)
		}
	}
	slices.SortStableFunc(out, func(a, b Move) int { return cmp.Compare(a.Wave, b.Wave) })
	return out
}

// Apply is how a plan is carried out.
type Apply struct {
	Moves []Move
	// Pause is the time between two looks; after Idle without a reaction of the scheduler
	// people are told so.
	Pause, Idle time.Duration
	// Tell is told what happens, a line each.
	Tell func(line string)
}

// Apply asks the scheduler to make the moves of a plan, wave by wave: each wave when the moves
// before are over. It stops after a wave in which a move failed, because later ones depend on
// it. When ctx ends, no other wave begins; the scheduler finishes the moves in progress.
func (c *Client) Apply(ctx context.Context, a *Apply) error {
	l := &applied{c: c, Apply: a, request: time.Now().UTC().Format(time.RFC3339Nano), told: map[types.UID]string{}}
	for from := 0; from < len(a.Moves); {
		to := from + 1
		for to < len(a.Moves) && a.Moves[to].Wave == a.Moves[from].Wave {
			to++
		}
		if err := l.wave(ctx, a.Moves[from:to]); err != nil {
			return err
		}
		if from = to; l.failed > 0 {
			return fmt.Errorf("moves made: %d of %d; failed: %d; no other move was requested: run the command again for a new plan", l.moved, len(a.Moves), l.failed)
		}
	}
	a.Tell(fmt.Sprintf("moves made: %d of %d", l.moved, len(a.Moves)))
	return nil
}

// applied is how far a plan is.
type applied struct {
	c *Client
	*Apply
	request       string
	moved, failed int
	told          map[types.UID]string // what was told last of each pod
	idle          bool
}

// wave requests the moves of a wave, and waits until they are over.
func (l *applied) wave(ctx context.Context, moves []Move) error {
	left := slices.Clone(moves)
	began := time.Now()
	for i := range left {
		if ctx.Err() != nil {
			return l.interrupted(i)
		}
		if err := l.ask(ctx, &left[i]); err != nil {
			return err
		}
	}
	for {
		var bad error
		left = slices.DeleteFunc(left, func(x Move) bool {
			over, err := l.look(ctx, &x, time.Since(began))
			bad = errors.Join(bad, err)
			return over
		})
		switch {
		case ctx.Err() != nil:
			return l.interrupted(len(left))
		case bad != nil:
			return bad
		case len(left) == 0:
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(l.Pause):
		}
	}
}

func (l *applied) interrupted(left int) error {
	return fmt.Errorf("interrupted: moves made: %d of %d; the scheduler finishes the moves in progress: %d; no other move was requested", l.moved, len(l.Moves), left)
}

func (l *applied) asks(x *Move) translate.MoveRequest {
	r := translate.MoveRequest{Node: x.To, Request: l.request}
	if x.With > 0 {
		r.Request += fmt.Sprintf(" of=%d", x.With)
	}
	return r
}

// ask requests a move. A pod that is gone has left its node, whoever ended it.
func (l *applied) ask(ctx context.Context, x *Move) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": x.UID, "annotations": map[string]string{v1alpha1.MoveAnnotation: l.asks(x).String()},
	}})
	if err != nil {
		return err
	}
	_, err = l.c.kube.CoreV1().Pods(x.Namespace).Patch(ctx, x.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // look finds that it is gone
	}
	return l.c.say("change pod "+x.Namespace+"/"+x.Name, err)
}

// look reports whether a move is over, and tells what has happened.
func (l *applied) look(ctx context.Context, x *Move, waited time.Duration) (over bool, err error) {
	name := x.Namespace + "/" + x.Name
	p, err := l.c.kube.CoreV1().Pods(x.Namespace).Get(ctx, x.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && p.UID != x.UID:
		l.moved++
		l.Tell(fmt.Sprintf("%s has left node %s; moves made: %d of %d", name, x.From, l.moved, len(l.Moves)))
		return true, nil
	case err != nil:
		return false, l.c.say("get pod "+name, err)
	}
	r := l.asks(x)
	if why, over := r.Over(p); over {
		l.failed++
		l.Tell(name + " stays: " + why)
		return true, nil
	}
	now := ""
	switch rec := translate.MoveOf(p); {
	case p.DeletionTimestamp != nil && (rec.Active() || l.told[x.UID] != ""):
		now = "leaves node " + x.From
	case rec.Active():
		now = "is moved to node " + x.To
		for _, k := range p.Status.Conditions {
			if k.Type == v1alpha1.MovingCondition && k.Status == v1.ConditionTrue {
				now += ": " + k.Message
			}
		}
	case waited > l.Idle && !l.idle:
		l.idle = true
		l.Tell(fmt.Sprintf("the scheduler has not reacted to %s for %s: check that it runs", name, l.Idle))
	}
	if now != "" && now != l.told[x.UID] {
		l.told[x.UID] = now
		l.Tell(name + " " + now)
	}
	return false, nil
}
