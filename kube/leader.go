package kube

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Leader says how instances agree on the one that decides.
type Leader struct {
	// Namespace holds the Lease; no election when empty.
	Namespace string
	// Identity is this instance's name, unique among them.
	Identity string
}

// LeaseName is the Lease that the deciding instance holds.
const LeaseName = "muster"

// ErrLostLease says that another instance decides now. What this one assumed is
// worth nothing any more: the process should end and start anew.
var ErrLostLease = errors.New("another instance has taken the lease")

// lead calls decide once this instance is the one that decides, and cancels
// when it is no more.
func (s *Scheduler) lead(ctx context.Context, decide func(), cancel context.CancelCauseFunc) {
	if s.config.Leader.Namespace == "" {
		decide()
		return
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: LeaseName, Namespace: s.config.Leader.Namespace},
		Client:     s.client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: s.config.Leader.Identity},
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, Name: LeaseName, ReleaseOnCancel: true,
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				s.log.Info("this instance decides", "identity", s.config.Leader.Identity)
				decide()
			},
			OnStoppedLeading: func() { cancel(ErrLostLease) },
			OnNewLeader: func(identity string) {
				if identity != s.config.Leader.Identity {
					s.log.Info("another instance decides", "identity", identity)
				}
			},
		},
	})
}
