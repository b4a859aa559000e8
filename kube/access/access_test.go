package access

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

// api knows the token of prometheus, who may get /metrics, and that of tenant, who may not; it does
// not answer about the token "slow", nor about what the user "unclear" may do.
func api(t *testing.T, asked *atomic.Int32) kubernetes.Interface {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var o struct {
			authorizationv1.SubjectAccessReview
			Spec struct {
				Token string `json:"token"`
				authorizationv1.SubjectAccessReviewSpec
			} `json:"spec"`
		}
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			t.Error(err)
		}
		var answer any
		if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
			asked.Add(1)
			known := slices.Contains([]string{"prometheus", "tenant", "unclear"}, o.Spec.Token)
			answer = authenticationv1.TokenReview{Status: authenticationv1.TokenReviewStatus{Authenticated: known, User: authenticationv1.UserInfo{Username: o.Spec.Token}}}
		} else {
			url := o.Spec.NonResourceAttributes
			may := o.Spec.User == "prometheus" && url != nil && *url == authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}
			answer = authorizationv1.SubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: may}}
		}
		if o.Spec.Token == "slow" || o.Spec.User == "unclear" {
			http.Error(w, "no answer", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Metrics are for those whose token is of a user who may get them.
func TestGuard(t *testing.T) {
	var asked atomic.Int32
	h, err := Guard(api(t, &asked), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "muster_jobs 7") }), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, authorization string
		want                int
	}{
		{"/metrics", "", http.StatusUnauthorized},
		{"/metrics", "Bearer ", http.StatusUnauthorized},
		{"/metrics", "Basic cHJvbWV0aGV1czp4", http.StatusUnauthorized},
		{"/metrics", "Bearer made-up", http.StatusUnauthorized},
		{"/metrics", "Bearer slow", http.StatusUnauthorized},
		{"/metrics", "Bearer tenant", http.StatusForbidden},
		{"/metrics", "Bearer unclear", http.StatusInternalServerError},
		{"/metrics", "Bearer prometheus", http.StatusOK},
		{"/other", "Bearer prometheus", http.StatusForbidden},
	} {
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		if c.authorization != "" {
			r.Header.Set("Authorization", c.authorization)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want || (w.Body.String() == "muster_jobs 7") != (c.want == http.StatusOK) {
			t.Errorf("%s with %q: %d %q, want %d", c.path, c.authorization, w.Code, w.Body, c.want)
		}
	}
	before := asked.Load()
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Authorization", "Bearer prometheus")
	if h.ServeHTTP(httptest.NewRecorder(), r); asked.Load() != before {
		t.Error("the API server is asked about each request")
	}
}

// A certificate is that of the files as they are now, or one of its own.
func TestCertificate(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write := func(host string) {
		own, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(certFile, own, 0o600), os.WriteFile(keyFile, key, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	name := func(c *tls.Config) string {
		t.Helper()
		l, err := tls.Listen("tcp", "127.0.0.1:0", c)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			if conn, err := l.Accept(); err == nil {
				_ = conn.(*tls.Conn).Handshake()
			}
		}()
		conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].DNSNames[0]
	}
	if _, err := Certificate(certFile, keyFile, "h"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without files: %v", err)
	}
	write("one")
	c, err := Certificate(certFile, keyFile, "h")
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"one", "renewed"} {
		write(host)
		if got := name(c); got != host {
			t.Errorf("the certificate is of %s, want %s", got, host)
		}
	}
	own, err := Certificate("", "", "myself")
	if err != nil {
		t.Fatal(err)
	}
	if got := name(own); got != "myself" {
		t.Errorf("its own certificate is of %s", got)
	}
}
