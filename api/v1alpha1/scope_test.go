package v1alpha1_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/quota"
)

// What a queue whose quotaScope is Subtree owns beside the queues below it, and what it can borrow. An amount is in
// GPUs: the queue's, +what it can borrow.
func TestContain(t *testing.T) {
	read := func(text string) (q core.Queue, subtree bool) {
		fields := strings.Fields(text)
		q.Name = fields[0]
		for _, f := range fields[1:] {
			var nominal, borrows int64
			switch model, amount, _ := strings.Cut(f, "="); {
			case f == "subtree":
				subtree = true
			case model == "below":
				q.Parent = amount
			default:
				e := core.Quota{Model: model, BorrowingLimit: core.Unlimited, LendingLimit: core.Unlimited}
				if n, _ := fmt.Sscanf(amount, "%d+%d", &nominal, &borrows); n == 2 {
					e.BorrowingLimit = core.Milli(borrows) * core.WholeGPU
				}
				if e.Nominal = core.Milli(nominal) * core.WholeGPU; amount == "-1" {
					e.Nominal = quota.MaxQuota
				}
				q.Quota = append(q.Quota, e)
			}
		}
		return q, subtree
	}
	for _, c := range []struct {
		name, queues, of, owns, says string
	}{
		{"beside is the default", "dept *=16; a below=dept *=8", "dept", "*=16", ""},
		{"what the queues below leave", "dept subtree *=16; a below=dept *=8; b below=dept *=5", "dept", "*=3", ""},
		{"it can borrow what it could", "dept subtree *=16+8; a below=dept *=8; b below=dept *=5", "dept", "*=3+8", ""},
		{"less, if they own more", "dept subtree *=16+8; a below=dept *=20", "dept", "*=0+4", "the queues below own 20 of GPUs, more than its 16"},
		{"nothing, if they own as much as it may use", "dept subtree *=4+1; a below=dept *=6", "dept", "*=0+0", "the queues below own 6 of GPUs, more than its 4"},
		{"the innermost first", "org subtree *=20; dept subtree below=org *=16; a below=dept *=8", "org", "*=4", ""},
		{"one that adds, in one that contains", "org subtree *=20; dept below=org *=6; a below=dept *=8", "org", "*=6", ""},
		{"models by themselves", "dept subtree H800=8 A100=4; a below=dept H800=6", "dept", "H800=2 A100=4", ""},
		{"all models count to *", "dept subtree *=16; a below=dept H800=6 A100=2", "dept", "*=8", ""},
		{"* does not count to one", "dept subtree H800=16; a below=dept *=6", "dept", "H800=16", ""},
		{"nothing, if they own without limit", "dept subtree *=4+8; a below=dept *=-1", "dept", "*=0+0", "the queues below own GPUs without limit, more than its 4"},
		{"without limit it stays so", "dept subtree *=-1; a below=dept *=8", "dept", "*=-1", ""},
		{"in one without quota", "org subtree *=16; dept below=org; a below=dept *=5", "org", "*=11", ""},
		{"parents come last", "a below=dept *=8; dept subtree *=16", "dept", "*=8", ""},
	} {
		var queues []core.Queue
		subtree := map[string]bool{}
		for line := range strings.SplitSeq(c.queues, ";") {
			q, contains := read(line)
			queues, subtree[q.Name] = append(queues, q), contains
		}
		said := v1alpha1.Contain(queues, func(name string) bool { return subtree[name] })
		want, _ := read("x " + c.owns)
		for i := range queues {
			if queues[i].Name == c.of && fmt.Sprint(queues[i].Quota) != fmt.Sprint(want.Quota) {
				t.Errorf("%s: %s owns %v, expected %v", c.name, c.of, queues[i].Quota, want.Quota)
			}
		}
		if !strings.HasPrefix(said[c.of], c.says) || c.says == "" && said[c.of] != "" {
			t.Errorf("%s: %s: %q, expected %q", c.name, c.of, said[c.of], c.says)
		}
	}
}

// A queue that contains those below it owns with them what it says, or what they own if that is more.
func TestContainSums(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		n := 1 + r.IntN(8)
		queues, before := make([]core.Queue, n), make([]core.Milli, n)
		for i := range queues {
			queues[i] = core.Queue{Name: fmt.Sprint(i), Quota: []core.Quota{{Model: "*", Nominal: core.Milli(r.IntN(20)), BorrowingLimit: core.Unlimited}}}
			before[i] = queues[i].Quota[0].Nominal
			if i > 0 {
				queues[i].Parent = fmt.Sprint(r.IntN(i))
			}
		}
		v1alpha1.Contain(queues, func(string) bool { return true })
		own, said := make([]core.Milli, n), make([]core.Milli, n) // with all below
		for i := n - 1; i >= 0; i-- {
			own[i] += queues[i].Quota[0].Nominal
			said[i] = max(said[i], before[i])
			if i > 0 {
				var up int
				fmt.Sscan(queues[i].Parent, &up)
				own[up] += own[i]
				said[up] += said[i]
			}
			if own[i] != said[i] {
				t.Fatalf("queue %d of %v owns %d with all below it, expected %d", i, before, own[i], said[i])
			}
		}
	}
}
