package quota

import "github.com/muster-sched/muster/core/cluster"

// Mode says whether a queue shares its quota.
type Mode uint8

const (
	// Shared queues lend what they do not use and borrow what others lend.
	Shared Mode = iota
	// Isolated queues neither lend nor borrow: what counts against their nominal quota
	// never exceeds it, even if queues below have quota left. Those may use what the
	// queue leaves; together they never use more than all of them own.
	Isolated
)

// Unlimited is the limit of a quota that has none.
const Unlimited cluster.Milli = 1<<63 - 1

// MaxQuota is the most that a queue may own, borrow or lend of a model.
const MaxQuota cluster.Milli = 1 << 48

// AnyModel is the model of a quota over all GPU models together.
const AnyModel = "*"

// QueueSpec describes where the jobs of a tenant wait.
type QueueSpec struct {
	Name string
	// Parent names the queue this one belongs to; empty at the top. What
	// the children of a queue do not use they lend to each other, and through
	// it to others; queues at the top lend to each other.
	Parent string
	// Weight is the queue's share against its siblings, at least 1.
	Weight int64
	Mode   Mode
	// Quota has at most one entry a model. Where no queue has any, there is no
	// limit. Otherwise a queue with entries may use the models it lists, or all
	// when it lists [AnyModel]. A queue without entries owns nothing; the entries of the
	// nearest queue above that has some say what it may use.
	Quota []Quota
}

// Quota is the GPU quota of a queue for one model (Kant §3.2.1).
type Quota struct {
	// Model is a GPU model or [AnyModel]; a request counts against both.
	Model string
	// Nominal is what the queue owns, 0..MaxQuota.
	Nominal cluster.Milli
	// BorrowingLimit is how much more it may use when others lend;
	// LendingLimit how much of its own others may use: 0..MaxQuota, or
	// [Unlimited] when not given; ignored by Isolated queues.
	BorrowingLimit, LendingLimit cluster.Milli
}
