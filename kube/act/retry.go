package act

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/net"
)

// Patience is the time for which a request is retried while the API server cannot accept
// it.
const Patience = 30 * time.Second

// Retry calls do repeatedly, with growing pauses, while its error may go away by itself,
// but for at most [Patience]. It returns the last error, or that of ctx.
func Retry(ctx context.Context, do func() error) error {
	pause := 20 * time.Millisecond
	for waited := time.Duration(0); ; waited += pause {
		err := do()
		if err == nil || !IsTransient(err) || waited > Patience {
			return err
		}
		pause = min(2*pause, 2*time.Second)
		if after, ok := apierrors.SuggestsClientDelay(err); ok {
			pause = max(pause, time.Duration(after)*time.Second)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// IsTransient reports whether an error may go away by itself: the API server did not answer,
// or was overloaded.
func IsTransient(err error) bool {
	if _, refused := errors.AsType[refusal](err); refused || errors.Is(err, context.Canceled) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true // no answer
	}
	return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || net.IsConnectionRefused(err)
}

// refusal says why an act cannot succeed at present: it is not retried.
type refusal string

func (r refusal) Error() string { return string(r) }
