package kube

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/kube/act"
	"github.com/muster-sched/muster/kube/mirror"
	"github.com/muster-sched/muster/kube/objects"
)

// tenure is the scheduler as its [lease.Election] sees it: it takes shards and gives them
// up.
type tenure struct{ *Scheduler }

// Take has this instance decide on a shard, and resume the owners there that an instance
// before it suspended.
func (s tenure) Take(ctx context.Context, shard int) error {
	taken := make(chan error, 1)
	s.box.Put(func(m *mirror.Mirror) {
		if ctx.Err() != nil {
			return // it is another's again
		}
		s.recovery.Resume()
		err := m.Take(shard)
		if err == nil {
			s.held[shard].Store(true)
		}
		taken <- err
	})
	select {
	case err := <-taken:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return nil
	}
	s.begun.Do(func() { close(s.ready) })
	for {
		err := s.actor.FindSuspended(ctx)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		s.log.Warn("cannot list suspended owners: they stay suspended until that succeeds", "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(act.Patience):
		}
	}
}

// GiveUp ends deciding on a shard, and waits until all that was sent has been answered.
func (s tenure) GiveUp(ctx context.Context, shard int) bool {
	over := make(chan struct{})
	s.box.Put(func(m *mirror.Mirror) {
		if !m.Holds(shard) {
			close(over)
			return
		}
		s.held[shard].Store(false)
		if len(s.Holds()) == 0 {
			s.recovery.Rest()
		}
		m.GiveUp(shard, func() { close(over) })
	})
	select {
	case <-over:
	case <-ctx.Done():
		return false
	}
	return s.actor.Drain(ctx, shard)
}

// RenewedLate makes the loop check the fence again.
func (s tenure) RenewedLate() { s.box.Put(func(*mirror.Mirror) {}) }

// CatchUp waits until the tables have every binding that the API server had taken when it
// was called: those of the instance that decided before.
func (s tenure) CatchUp(ctx context.Context) bool {
	var missing []metav1.PartialObjectMetadata
	for list := true; ; {
		if list {
			all, err := s.bindings(ctx)
			if err == nil {
				missing, list = all, false
			} else if ctx.Err() == nil {
				s.log.Warn("cannot list the bound pods", "error", err)
			}
		}
		if !list {
			answer := make(chan []metav1.PartialObjectMetadata, 1)
			s.box.Put(func(m *mirror.Mirror) { answer <- m.Unseen(missing) })
			select {
			case missing = <-answer:
			case <-ctx.Done():
				return false
			}
			if missing = s.alive(ctx, missing); len(missing) == 0 {
				return ctx.Err() == nil
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(catchUpPeriod):
		}
	}
}

// catchUpPeriod is the time between two checks whether the tables are complete.
const catchUpPeriod = 50 * time.Millisecond

// bindings lists the pods that have a node and are not over.
func (s tenure) bindings(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	// In one page: the API server answers from memory then, and as of now.
	list, err := s.metadata.Resource(v1.SchemeGroupVersion.WithResource("pods")).List(ctx, metav1.ListOptions{
		FieldSelector: "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed",
	})
	s.metrics.Request("list", err)
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// alive returns those of the pods that still exist, and are not over.
func (s tenure) alive(ctx context.Context, pods []metav1.PartialObjectMetadata) []metav1.PartialObjectMetadata {
	var out []metav1.PartialObjectMetadata
	for _, p := range pods {
		got, err := s.client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
		s.metrics.Request("get", err)
		if apierrors.IsNotFound(err) || err == nil && (got.UID != p.UID || objects.TrimPod(got).Over()) {
			continue
		}
		out = append(out, p)
	}
	return out
}
