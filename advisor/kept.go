package advisor

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/muster-sched/muster/semantic/history"
)

// Kept is a history that may be opened later, as its server may not answer yet.
type Kept struct {
	where string
	mu    sync.Mutex
	h     *history.History // nil until it is open
}

// Open opens a history. If its server does not answer, unanswered says why, and each use tries again; err is of a history that cannot be opened.
func Open(ctx context.Context, where string) (k *Kept, unanswered, err error) {
	k = &Kept{where: where}
	_, err = k.history(ctx)
	var dial *net.OpError
	var lookup *net.DNSError
	if errors.As(err, &dial) || errors.As(err, &lookup) || errors.Is(err, context.DeadlineExceeded) {
		return k, err, nil
	}
	return k, nil, err
}

// history returns the history, which it opens if it is not open.
func (k *Kept) history(ctx context.Context) (*history.History, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.h == nil {
		h, err := history.Open(ctx, k.where, history.Options{})
		if err != nil {
			return nil, err
		}
		k.h = h
	}
	return k.h, nil
}

// Close closes the history.
func (k *Kept) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.h == nil {
		return nil
	}
	return k.h.Close()
}
