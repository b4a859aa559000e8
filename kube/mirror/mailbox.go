package mirror

import (
	"sync"
)

// Mailbox holds observations and outcomes until the one goroutine that owns the tables
// applies them, in the order in which they arrived.
type Mailbox struct {
	mu    sync.Mutex
	list  []Fact
	Ready chan struct{} // has an element when the list has any
}

// Fact changes the tables.
type Fact func(*Mirror)

// NewMailbox returns an empty mailbox.
func NewMailbox() *Mailbox { return &Mailbox{Ready: make(chan struct{}, 1)} }

// Put adds a fact. It never blocks.
func (b *Mailbox) Put(f Fact) {
	b.mu.Lock()
	b.list = append(b.list, f)
	b.mu.Unlock()
	select {
	case b.Ready <- struct{}{}:
	default:
	}
}

// Take empties the mailbox; spare is memory for what comes next.
func (b *Mailbox) Take(spare []Fact) []Fact {
	clear(spare)
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.list
	b.list = spare[:0]
	return list
}
