package kube

import "sync"

// mailbox holds what was seen or answered until the one goroutine that owns
// the tables takes it in, in the order in which it came.
type mailbox struct {
	mu    sync.Mutex
	list  []fact
	ready chan struct{} // has an element when the list has any
}

// fact changes the tables.
type fact func(*mirror)

func newMailbox() *mailbox { return &mailbox{ready: make(chan struct{}, 1)} }

// put adds a fact. It never blocks.
func (b *mailbox) put(f fact) {
	b.mu.Lock()
	b.list = append(b.list, f)
	b.mu.Unlock()
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// take empties the mailbox; spare is memory for what comes next.
func (b *mailbox) take(spare []fact) []fact {
	clear(spare)
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.list
	b.list = spare[:0]
	return list
}
