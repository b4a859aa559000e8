package console

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/kube"
	"github.com/muster-sched/muster/kube/recovery"
)

// Client reads a cluster with the rights of the user.
type Client struct {
	host   string
	kube   kubernetes.Interface
	muster rest.Interface
}

// New returns a client. It asks for protobuf, which is read several times as
// fast as JSON, where there is any.
func New(c *rest.Config) (*Client, error) {
	c = rest.CopyConfig(c)
	c.QPS, c.Burst = -1, 0               // people wait; the server limits requests if it must
	c.WarningHandler = rest.NoWarnings{} // of versions that will be deprecated: no business of the user
	muster, err := kube.NewClient(c)
	if err != nil {
		return nil, err
	}
	c.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		return nil, err
	}
	return &Client{host: c.Host, kube: client, muster: muster}, nil
}

// page is how many objects are read at once: a large cluster takes few requests, and an answer little memory.
const page = 4000

// pages calls each with every object of a list that comes page by page. When a list became too old, it calls reset and starts again, once.
func pages[L runtime.Object](ctx context.Context, o metav1.ListOptions, list func(context.Context, metav1.ListOptions) (L, error), reset func(), each func(L)) error {
	o.Limit = page
	for restarted := false; ; {
		l, err := list(ctx, o)
		if apierrors.IsResourceExpired(err) && o.Continue != "" && !restarted {
			restarted, o.Continue = true, ""
			reset()
			continue
		}
		if err != nil {
			return err
		}
		each(l)
		m, err := meta.ListAccessor(l)
		if err != nil {
			return err
		}
		if o.Continue = m.GetContinue(); o.Continue == "" {
			return nil
		}
	}
}

// queues reads the Queue objects; none where the cluster has no such kind, or the user may not read it.
func (c *Client) queues(ctx context.Context) ([]v1alpha1.Queue, error) {
	var l v1alpha1.QueueList
	err := c.muster.Get().Resource("queues").Do(ctx).Into(&l)
	if optional(err) {
		return nil, nil
	}
	return l.Items, err
}

// levels returns the node labels of the topology in use, widest first; none where there is none.
func (c *Client) levels(ctx context.Context) ([]string, error) {
	var l v1alpha1.TopologyList
	if err := c.muster.Get().Resource("topologies").Do(ctx).Into(&l); err != nil {
		if optional(err) {
			err = nil
		}
		return nil, err
	}
	for i := range l.Items {
		t := &l.Items[i]
		if r := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ReadyCondition); len(l.Items) == 1 || r != nil && r.Status == metav1.ConditionTrue && r.Reason != v1alpha1.TopologyAccepted {
			return t.Spec.Labels(), nil
		}
	}
	return nil, nil
}

// Release asks the scheduler to let a job start again that is held, and returns its name.
func (c *Client) Release(ctx context.Context, namespace, name string) (string, error) {
	job, err := recovery.Release(ctx, c.kube, namespace, name, time.Now())
	return job, c.say("release job "+name, err)
}

// optional reports whether an error says that there is no such thing here or that the user may not see it: what is not needed is left out.
func optional(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }

// say makes an error of the API say what to do next. doing is what was being done, such as "list pods".
func (c *Client) say(doing string, err error) error {
	var dial *net.OpError
	var failed *url.Error
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return err
	case apierrors.IsForbidden(err):
		return fmt.Errorf("no permission to %s: %s; ask for it, or choose one of your namespaces with muster queue -n", doing, reasonText(err))
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server at %s rejects your credentials: renew them in your kubeconfig, or choose another context with --context", c.host)
	case errors.As(err, &dial), errors.As(err, &failed):
		return fmt.Errorf("the API server at %s does not answer (%v): check that it runs, and that --kubeconfig and --context are correct", c.host, cause(err))
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// reasonText is the message of an error of the API without what every such message starts with.
func reasonText(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Message != "" {
		return status.Status().Message
	}
	return err.Error()
}

// cause is the innermost error.
func cause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// live selects the pods that hold or want something.
const live = "status.phase!=" + string(v1.PodSucceeded) + ",status.phase!=" + string(v1.PodFailed)
