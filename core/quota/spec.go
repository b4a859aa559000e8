package quota

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/muster-sched/muster/core/cluster"
)

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

// MaxQuota is the most that a queue may own, borrow or lend of a model or resource: more than any cluster has,
// so that a queue that owns it owns without limit.
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
	// Weight is the queue's share against its siblings. With 0 it is owed only what they leave of what is divided.
	Weight int64
	// Priority decides between siblings before Weight does: those of higher priority get what they
	// request of what is divided by weight before the others get any, see [Ledger.Divide].
	Priority int32
	Mode     Mode
	// Quota has at most one entry a model. A model of which no queue has any, nor of [AnyModel], is
	// without limit for all. Of the others a queue with entries may use the models it lists, or all
	// when it lists [AnyModel]. A queue without entries owns nothing; the entries of the
	// nearest queue above that has some say what it may use.
	Quota []Quota
	// Resources has at most one entry a resource. The queue's jobs, and those of the queues below it,
	// count against them, whichever GPUs they use. What neither a queue nor one above it lists does
	// not limit its jobs.
	Resources []ResourceQuota
	// MaxRunning bounds what runs at one time in the queue and all below it, MaxRunningPerUser what
	// the jobs of each user there do.
	MaxRunning, MaxRunningPerUser Running
	// FairUsers says that the next job of the queue is one of the user whose jobs hold least there.
	FairUsers bool
}

// ResourceQuota is the quota of a queue for a resource other than GPUs.
type ResourceQuota struct {
	// Resource is [cluster.CPU], [cluster.Memory], or the name of another one.
	Resource string
	// Amounts are in milli-cores, in MiB, or in the unit in which the driver counts the resource. They
	// mean the same as those of [Quota].
	Nominal, BorrowingLimit, LendingLimit Milli
}

// AccountText names an account in messages.
func AccountText(account string) string {
	if account == AnyModel {
		return "GPUs"
	}
	resource, _ := cluster.ResourceOf(account)
	if resource == "" {
		return account
	}
	return resource
}

// AmountText writes an amount of an account: GPUs, cores, memory as 512Mi, else a number.
func AmountText(account string, amount Milli) string {
	resource, isResource := cluster.ResourceOf(account)
	switch {
	case amount >= MaxQuota:
		return "no limit"
	case !isResource || resource == cluster.CPU:
		return amount.GPUs() // thousandths, too
	case resource == cluster.Memory && amount != 0 && amount%1024 == 0:
		return fmt.Sprintf("%dGi", amount/1024)
	case resource == cluster.Memory && amount != 0:
		return fmt.Sprintf("%dMi", amount)
	}
	return strconv.FormatInt(int64(amount), 10)
}

// Check reports what is wrong with a queue's description by itself.
func Check(q *QueueSpec) error {
	switch {
	case q.Name == "":
		return errors.New("queue without a name")
	case q.Weight < 0:
		return fmt.Errorf("queue %s: weight must be at least 0, found %d", q.Name, q.Weight)
	}
	if err := checkRunning(q); err != nil {
		return err
	}
	for i := range q.Quota {
		if m := q.Quota[i].Model; m != AnyModel {
			if err := cluster.CheckModel(m); err != nil {
				return fmt.Errorf("queue %s: quota for %w", q.Name, err)
			}
		}
	}
	seen := map[string]bool{}
	for e := range q.entries {
		text := "model " + e.account
		if resource, ok := cluster.ResourceOf(e.account); ok {
			text = "resource " + resource
		}
		switch {
		case e.account == "" || e.account == cluster.AccountOf(""):
			return fmt.Errorf("queue %s: quota without the name of a model or resource", q.Name)
		case seen[e.account]:
			return fmt.Errorf("queue %s: two quotas for %s", q.Name, text)
		case e.nominal < 0 || e.borrow < 0 || e.lend < 0:
			return fmt.Errorf("queue %s: negative quota for %s", q.Name, text)
		case e.nominal > MaxQuota || tooMuch(e.borrow) || tooMuch(e.lend):
			return fmt.Errorf("queue %s: more quota for %s than %d thousandths or units, expected that at most, or no limit", q.Name, text, MaxQuota)
		}
		seen[e.account] = true
	}
	return nil
}

func tooMuch(limit cluster.Milli) bool { return limit > MaxQuota && limit != Unlimited }

// entry is a quota for an account: of a model, of [AnyModel], or of a resource.
type entry struct {
	account               string
	nominal, borrow, lend Milli
}

// entries yields the quotas of the queue.
func (q *QueueSpec) entries(yield func(entry) bool) {
	for _, e := range q.Quota {
		if !yield(entry{e.Model, e.Nominal, e.BorrowingLimit, e.LendingLimit}) {
			return
		}
	}
	for _, e := range q.Resources {
		if !yield(entry{cluster.AccountOf(e.Resource), e.Nominal, e.BorrowingLimit, e.LendingLimit}) {
			return
		}
	}
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
