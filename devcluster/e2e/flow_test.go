package e2e

import (
	"fmt"
	"net/http"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// flows keeps by which FlowSchema the API server handled the last request.
type flows struct {
	http.RoundTripper
	last string // its UID
}

func (f *flows) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := f.RoundTripper.RoundTrip(r)
	if err == nil {
		f.last = answer.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
	}
	return answer, err
}

// The renewals of the scheduler's leases wait in no queue with its other requests, nor either of them with those of tenants.
func TestLeasesHaveAQueue(t *testing.T) {
	c := begin(t)
	c.tenant()
	flow := func(token string) (kubernetes.Interface, *flows) {
		config, f := rest.AnonymousClientConfig(address), &flows{}
		config.BearerToken = token
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			f.RoundTripper = next
			return f
		})
		client, err := kubernetes.NewForConfig(config)
		c.must(err)
		return client, f
	}
	uid := func(name string) string {
		s, err := admin.FlowcontrolV1().FlowSchemas().Get(ctx(), name, metav1.GetOptions{})
		c.must(err)
		return string(s.UID)
	}
	leases, others := uid("muster-leases"), uid("muster-scheduler")

	scheduler, its := flow(identity.BearerToken)
	tenant, theirs := flow(c.tokenOf("tenant"))
	c.until("the API server knows the flows", func() error {
		scheduler.CoordinationV1().Leases(systemNamespace).Get(ctx(), "any", metav1.GetOptions{})
		if its.last != leases {
			return fmt.Errorf("a lease is in flow %q; expected %q", its.last, leases)
		}
		return nil
	})
	scheduler.CoreV1().Pods(c.namespace).Get(ctx(), "any", metav1.GetOptions{})
	if its.last != others {
		t.Errorf("a pod is in flow %q; expected %q", its.last, others)
	}
	tenant.CoreV1().Pods(c.namespace).Get(ctx(), "any", metav1.GetOptions{})
	if theirs.last == "" || theirs.last == leases || theirs.last == others {
		t.Errorf("a tenant's pod is in flow %q, which is the scheduler's", theirs.last)
	}
}
