package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/access"
)

// A tenant reads no metrics, which say who has how many GPUs. Whom the chart's role lets, does: the
// scheduler may ask the API server who that is.
func TestMetricsAreForReaders(t *testing.T) {
	c := begin(t)
	c.tenant()
	s := c.schedule()
	_, err := admin.CoreV1().ServiceAccounts(c.namespace).Create(ctx(), &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "prometheus"}}, metav1.CreateOptions{})
	c.must(err)
	bindings := admin.RbacV1().ClusterRoleBindings()
	_, err = bindings.Create(ctx(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: c.namespace}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "muster-metrics-reader"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "prometheus", Namespace: c.namespace}},
	}, metav1.CreateOptions{})
	c.must(err)
	t.Cleanup(func() { c.must(bindings.Delete(ctx(), c.namespace, metav1.DeleteOptions{})) })

	c.until("the role is bound", func() error {
		answer, err := admin.AuthorizationV1().SubjectAccessReviews().Create(ctx(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User:                  "system:serviceaccount:" + c.namespace + ":prometheus",
				NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
			},
		}, metav1.CreateOptions{})
		if err == nil && !answer.Status.Allowed {
			err = fmt.Errorf("it is not")
		}
		return err
	})

	own, err := kubernetes.NewForConfig(identity)
	c.must(err)
	h, err := access.Guard(own, s.Handler(), slog.New(slog.DiscardHandler))
	c.must(err)
	secure, err := access.Certificate("", "", "localhost")
	c.must(err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	c.must(err)
	at := l.Addr().String()
	c.must(l.Close())
	running, stop := context.WithCancel(ctx())
	defer stop()
	c.must(kube.Serve(running, at, h, secure))

	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // it is its own authority
	get := func(token string) (int, string) {
		r, err := http.NewRequestWithContext(ctx(), http.MethodGet, "https://"+at+"/metrics", nil)
		c.must(err)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := client.Do(r)
		c.must(err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		c.must(err)
		return answer.StatusCode, string(text)
	}
	for token, want := range map[string]int{"": http.StatusUnauthorized, "x": http.StatusUnauthorized, c.tokenOf("tenant"): http.StatusForbidden} {
		if code, text := get(token); code != want || strings.Contains(text, "muster_") {
			t.Errorf("%d %q, want %d", code, text, want)
		}
	}
	if code, text := get(c.tokenOf("prometheus")); code != http.StatusOK || !strings.Contains(text, "muster_decide_duration_seconds") {
		t.Errorf("whom the role lets gets %d, %d bytes", code, len(text))
	}
	if answer, err := http.Get("http://" + at + "/metrics"); err == nil {
		if answer.Body.Close(); answer.StatusCode == http.StatusOK {
			t.Error("they are read without TLS")
		}
	}
}
