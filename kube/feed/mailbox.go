package feed

import (
	"sync"
)

// Mailbox holds observations and outcomes until the one goroutine that owns the tables M
// applies them, in the order in which they arrived.
type Mailbox[M any] struct {
	mu    sync.Mutex
	list  []Fact[M]
	Ready chan struct{} // has an element when the list has any
}

// Fact changes the tables.
type Fact[M any] func(M)

// NewMailbox returns an empty mailbox.
func NewMailbox[M any]() *Mailbox[M] { return &Mailbox[M]{Ready: make(chan struct{}, 1)} }

// Put adds a fact. It never blocks.
func (b *Mailbox[M]) Put(f Fact[M]) {
	b.mu.Lock()
	b.list = append(b.list, f)
	b.mu.Unlock()
	select {
	case b.Ready <- struct{}{}:
	default:
	}
}

// Take empties the mailbox; spare is memory for what comes next.
func (b *Mailbox[M]) Take(spare []Fact[M]) []Fact[M] {
	clear(spare)
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.list
	b.list = spare[:0]
	return list
}
