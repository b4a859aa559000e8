// Package access lets those read the scheduler's metrics who may, by the API server's own answers:
// whose bearer token it is (TokenReview), and whether that user may get the path
// (SubjectAccessReview), as for the metrics of Kubernetes' own components.
package access

import (
	"log/slog"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes"
)

// How long the answers of the API server are kept.
const (
	keepUser    = time.Minute
	keepAllowed = 5 * time.Minute
	keepDenied  = 30 * time.Second
	patience    = 10 * time.Second // for an answer
)

// backoff is how a question is repeated that the API server did not answer.
func backoff() *wait.Backoff {
	return &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 3}
}

// Guard returns a handler that passes on to h the requests of users who may make them: 401 without a
// valid token, 403 without the permission, and 500 if the API server does not say whether they have it.
func Guard(client kubernetes.Interface, h http.Handler, log *slog.Logger) (http.Handler, error) {
	authn, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous:                &apiserver.AnonymousAuthConfig{},
		TokenAccessReviewClient:  client.AuthenticationV1(),
		TokenAccessReviewTimeout: patience, WebhookRetryBackoff: backoff(), CacheTTL: keepUser,
	}.New()
	if err != nil {
		return nil, err
	}
	authz, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		AllowCacheTTL:             keepAllowed, DenyCacheTTL: keepDenied, WebhookRetryBackoff: backoff(),
	}.New()
	if err != nil {
		return nil, err
	}
	return &guard{authn, authz, h, log}, nil
}

type guard struct {
	authn authenticator.Request
	authz authorizer.Authorizer
	next  http.Handler
	log   *slog.Logger
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who, ok, err := g.authn.AuthenticateRequest(r)
	if !ok {
		if err != nil {
			g.log.Debug("a request for metrics has no valid token", "error", err)
		}
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "expected the bearer token of a user of this cluster", http.StatusUnauthorized)
		return
	}
	may, _, err := g.authz.Authorize(r.Context(), authorizer.AttributesRecord{User: who.User, Verb: "get", Path: r.URL.Path})
	switch {
	case err != nil:
		g.log.Warn("cannot ask who may read metrics", "error", err)
		http.Error(w, "the API server does not say whether you may read this", http.StatusInternalServerError)
	case may != authorizer.DecisionAllow:
		http.Error(w, "expected a user who may get the non-resource URL "+r.URL.Path, http.StatusForbidden)
	default:
		g.next.ServeHTTP(w, r)
	}
}
