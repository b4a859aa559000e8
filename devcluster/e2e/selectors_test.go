package e2e

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/kube"
	index "github.com/muster-sched/muster/kube/devices"
	"github.com/muster-sched/muster/kube/tables"
)

// A tenant with a thousand different selectors in its claims, and with some that take long, has so many compared with all devices as a
// namespace may. Pods of others start meanwhile, with and without selectors of their own. When the tenant's pods are gone, there is
// room for others of its own.
func TestTenantOfManySelectors(t *testing.T) {
	many := 1000
	if testing.Short() {
		many = 250
	}
	c := begin(t)
	c.publishing(gpus(4, "H800"), []string{"a", "b"})
	tenant := c.tenant()
	theirs := c.namespace
	ours := c.newNamespace(nil)
	var ahead atomic.Int64
	c.schedule(func(k *kube.Config) {
		k.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})

	// 1. Each selector holds for all devices, and none of the pods fits a node.
	claimAs := func(name string, spec resourceapi.ResourceClaimSpec) error {
		_, err := tenant.ResourceV1().ResourceClaims(theirs).Create(ctx(), &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
		return err
	}
	list := "[" + strings.Repeat("1,", 30) + "1]"
	dear := fmt.Sprintf(`%s.all(a, %s.all(b, %s.all(c, a+b+c < 9)))`, list, list, list)
	c.until("the tenant makes a claim", func() error { return claimAs("dear", devices(1, dear)) })
	c.createAs(tenant, pod("dear", byClaim("dear")))
	var workers sync.WaitGroup
	next := make(chan int)
	for range 8 {
		workers.Go(func() {
			for k := range next {
				name := fmt.Sprintf("many-%d", k)
				err := claimAs(name, devices(64, fmt.Sprintf(`device.attributes["gpu.nvidia.com"].index < %d`, 1000+k)))
				if err == nil {
					_, err = tenant.CoreV1().Pods(theirs).Create(ctx(), pod(name, byClaim(name)), metav1.CreateOptions{})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for k := range many {
		if next <- k; k == many/2 {
			// 2. Others start, whatever they ask.
			c.namespace = ours
			c.template("any", devices(1))
			c.template("zero", devices(1, fmt.Sprintf(byIndex, 0)))
			c.create(pod("any", byTemplate("any")), pod("zero", byTemplate("zero")))
			c.phase(v1.PodRunning, "any", "zero")
			c.has("zero", "0")
			c.namespace = theirs
		}
	}
	close(next)
	workers.Wait()
	c.waits("dear", tables.ReasonTooComplex, "costs more than 10000 units of CEL on a device")
	c.waits(fmt.Sprintf("many-%d", many-1), tables.ReasonTooComplex, fmt.Sprintf("%d different selectors and constraints", index.MaxQuestions))
	c.namespace = ours
	c.template("one", devices(1, fmt.Sprintf(byIndex, 1)))
	c.create(pod("one", byTemplate("one")))
	c.has("one", "1")

	// 3. A pod that names no selectors of its own is none too many, and one of another selector is not when the others are gone, and
	// ten minutes have passed.
	c.namespace = theirs
	if err := claimAs("plain", devices(1)); err != nil {
		t.Fatal(err)
	}
	if err := claimAs("last", devices(1, `device.attributes["gpu.nvidia.com"].index < 999`)); err != nil {
		t.Fatal(err)
	}
	c.createAs(tenant, pod("plain", byClaim("plain")), pod("last", byClaim("last")))
	c.phase(v1.PodRunning, "plain")
	c.waits("last", tables.ReasonTooComplex)
	for k := range many {
		c.delete(fmt.Sprintf("many-%d", k))
	}
	ahead.Store(int64(12 * time.Minute))
	c.phase(v1.PodRunning, "last")
	c.auditClaims()
}
