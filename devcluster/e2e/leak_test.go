package e2e

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/lease"
)

// A scheduler that has ended leaves no goroutine of its own behind, however often it
// starts, with work under way and without.
func TestEndsWhole(t *testing.T) {
	c := begin(t)
	c.forgetLeases()
	c.nodesNamed("n", 3)
	for round := range 3 {
		s := c.schedule(func(k *kube.Config) {
			k.Leader = lease.Leader{Namespace: systemNamespace, Identity: fmt.Sprint("i", round)}
		})
		c.bound(c.several(fmt.Sprint("a", round), 0, 2)...)
		c.several(fmt.Sprint("b", round), 0, 4)
		s.stop()
		c.until("its goroutines have ended", func() error {
			buf := make([]byte, 8<<20)
			var left []string
			for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
				if strings.Contains(stack, "kube/local.Start") {
					continue // the cluster's, which is there for all tests
				}
				if strings.Contains(stack, "muster-sched/muster/kube") || strings.Contains(stack, "client-go/tools/cache") || strings.Contains(stack, "client-go/tools/record") {
					left = append(left, stack)
				}
			}
			if len(left) > 0 {
				return fmt.Errorf("%d are left, such as:\n%s", len(left), left[0])
			}
			return nil
		})
	}
}
