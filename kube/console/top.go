package console

// Model is the nodes of a GPU model.
type Model struct{}

// QueueUsage is what a queue has.
type QueueUsage struct{}
