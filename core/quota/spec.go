package quota

import "github.com/muster-sched/muster/core/cluster"

// Mode says whether a queue shares its quota.
type Mode uint8

const (
	// Shared queues lend what they do not use and borrow what others lend.
	Shared Mode = iota
	// Isolated queues neither lend nor borrow: usage never exceeds the nominal
	// quota.
	Isolated
)

// Unlimited is the limit of a quota that has none.
const Unlimited cluster.Milli = 1<<63 - 1

// AnyModel is the model of a quota over all GPU models together.
const AnyModel = "*"

// Queue describes where the jobs of a tenant wait.
type Queue struct {
	Name string
	// Parent names the queue this one belongs to; empty at the top. Queues
	// under one root lend to each other.
	Parent string
	// Weight is the queue's share against its siblings, at least 1.
	Weight int64
	Mode   Mode
	// Quota has at most one entry a model. A queue without any entry has no
	// limit; one with entries has none of a model it does not list, unless it
	// lists [AnyModel].
	Quota []Quota
}

// Quota is the GPU quota of a queue for one model (Kant §3.2.1).
type Quota struct {
	// Model is a GPU model or [AnyModel]; a request counts against both.
	Model string
	// Nominal is what the queue owns.
	Nominal cluster.Milli
	// BorrowingLimit is how much more it may use when others lend;
	// LendingLimit how much of its own others may use. [Unlimited] when not
	// given; ignored by Isolated queues.
	BorrowingLimit, LendingLimit cluster.Milli
}
