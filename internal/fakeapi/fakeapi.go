// Package fakeapi is a small Kubernetes API in memory, for tests of what reads
// and writes one: objects of a few kinds, as JSON, with lists in pages, field
// selectors and merge patches. It has no watches, no admission and no controllers.
package fakeapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// kinds are the kinds that are served, by resource.
var kinds = map[string]string{
	"pods": "Pod", "nodes": "Node", "namespaces": "Namespace", "events": "Event", "services": "Service", "secrets": "Secret",
	"jobs": "Job", "podgroups": "PodGroup", "queues": "Queue", "topologies": "Topology",
	"resourceslices": "ResourceSlice", "resourceclaims": "ResourceClaim", "priorityclasses": "PriorityClass",
	"devicetaintrules": "DeviceTaintRule",
}

// Server answers requests of clients.
type Server struct {
	mu      sync.Mutex
	objects map[string]map[string]any // by path
	forbid  []*regexp.Regexp
	refuse  *regexp.Regexp // objects that are invalid, and why
	why     string
	made    int
}

// New returns a server with the objects of a text: YAML, separated by "---". In
// it, ago(5m) stands for the time five minutes before now.
func New(text string, now time.Time) (*Server, error) {
	s := &Server{objects: map[string]map[string]any{}}
	var bad error
	text = regexp.MustCompile(`ago\(([^)]*)\)`).ReplaceAllStringFunc(text, func(ago string) string {
		d, err := time.ParseDuration(strings.TrimSuffix(strings.TrimPrefix(ago, "ago("), ")"))
		if err != nil {
			bad = err
		}
		return now.Add(-d).UTC().Format(time.RFC3339)
	})
	d := yaml.NewDecoder(strings.NewReader(text))
	for bad == nil {
		var o map[string]any
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			return s, nil
		} else if err != nil {
			return nil, err
		}
		if o != nil {
			bad = s.Add(o)
		}
	}
	return nil, bad
}

// Add adds an object.
func (s *Server) Add(o map[string]any) error {
	// Numbers and lists as JSON has them.
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		return err
	}
	for resource, kind := range kinds {
		if kind == u.GetKind() {
			base := "/apis/" + u.GetAPIVersion()
			if u.GetAPIVersion() == "v1" {
				base = "/api/v1"
			}
			if ns := u.GetNamespace(); ns != "" {
				base += "/namespaces/" + ns
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.objects[base+"/"+resource+"/"+u.GetName()] = u.Object
			return nil
		}
	}
	return fmt.Errorf("kind %s is not served", u.GetKind())
}

// Forbid makes requests fail whose method and path match, such as "GET
// /api/v1/pods".
func (s *Server) Forbid(requests *regexp.Regexp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forbid = append(s.forbid, requests)
}

// Refuse makes the server find objects invalid, because of why, whose JSON
// matches as they are made.
func (s *Server) Refuse(objects *regexp.Regexp, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse, s.why = objects, why
}

// Object returns what is stored under a path, nil when nothing is.
func (s *Server) Object(path string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[path]
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	var answer any
	if err == nil {
		answer, err = s.answer(r, body)
	}
	if log, ok := answer.(log); ok {
		_, _ = io.WriteString(w, string(log))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		status := apierrors.NewInternalError(err)
		if !errors.As(err, &status) {
			status = apierrors.NewInternalError(err)
		}
		status.ErrStatus.Kind, status.ErrStatus.APIVersion = "Status", "v1"
		w.WriteHeader(int(status.ErrStatus.Code))
		answer = status.ErrStatus
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// place is what the path of a request names.
type place struct{ base, namespace, resource, name, sub string }

func parse(path string) (place, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	n := 3
	if len(parts) > 0 && parts[0] == "api" {
		n = 2
	}
	if len(parts) <= n {
		return place{}, false
	}
	p := place{base: "/" + strings.Join(parts[:n], "/")}
	if rest := parts[n:]; len(rest) > 2 && rest[0] == "namespaces" {
		p.namespace, parts = rest[1], rest[2:]
	} else {
		parts = rest
	}
	p.resource = parts[0]
	if len(parts) > 1 {
		p.name = parts[1]
	}
	if len(parts) > 2 {
		p.sub = parts[2]
	}
	return p, kinds[p.resource] != ""
}

func (s *Server) answer(r *http.Request, body []byte) (any, error) {
	p, ok := parse(r.URL.Path)
	resource := schema.GroupResource{Resource: p.resource}
	if slices.ContainsFunc(s.forbid, func(f *regexp.Regexp) bool { return f.MatchString(r.Method + " " + r.URL.Path) }) {
		return nil, apierrors.NewForbidden(resource, p.name, errors.New("the user has no role for it"))
	}
	if !ok {
		return nil, apierrors.NewNotFound(resource, p.name)
	}
	path := r.URL.Path
	if p.sub != "" {
		path = strings.TrimSuffix(path, "/"+p.sub)
	}
	o := s.objects[path]
	if p.name != "" && o == nil {
		return nil, apierrors.NewNotFound(resource, p.name)
	}
	switch {
	case r.Method == http.MethodGet && p.name == "":
		return s.list(&p, r)
	case r.Method == http.MethodGet && p.sub == "log":
		return logOf(o, r), nil
	case r.Method == http.MethodGet:
		return o, nil
	case r.Method == http.MethodPost && p.name == "":
		return s.create(path, body)
	case r.Method == http.MethodPatch:
		var patch map[string]any
		if err := json.Unmarshal(body, &patch); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		merge(o, patch)
		return o, nil
	case r.Method == http.MethodDelete:
		delete(s.objects, path)
		return o, nil
	}
	return nil, apierrors.NewMethodNotSupported(resource, r.Method)
}

// log is what a container printed.
type log string

// logOf returns the log of a pod, which its annotation "log" has, and "log-previous" that of the container before.
func logOf(pod map[string]any, r *http.Request) log {
	name := "log"
	if r.URL.Query().Get("previous") == "true" {
		name += "-previous"
	}
	text, _, _ := unstructured.NestedString(pod, "metadata", "annotations", name)
	lines := strings.SplitAfter(text, "\n")
	if n, err := strconv.Atoi(r.URL.Query().Get("tailLines")); err == nil {
		lines = lines[max(0, len(lines)-n-1):]
	}
	return log(strings.Join(lines, ""))
}

func (s *Server) list(p *place, r *http.Request) (any, error) {
	selector, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	items := []any{}
	for _, path := range slices.Sorted(maps.Keys(s.objects)) {
		at, _ := parse(path)
		if at.base == p.base && at.resource == p.resource && (p.namespace == "" || p.namespace == at.namespace) && selector.Matches(values{s.objects[path]}) {
			items = append(items, s.objects[path])
		}
	}
	m := map[string]any{"resourceVersion": "1"}
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	if items = items[min(from, len(items)):]; len(items) > 0 {
		if limit, _ := strconv.Atoi(r.URL.Query().Get("limit")); limit > 0 && len(items) > limit {
			items = items[:limit]
			m["continue"] = strconv.Itoa(from + limit)
		}
	}
	version := strings.TrimPrefix(strings.TrimPrefix(p.base, "/apis/"), "/api/")
	return map[string]any{"kind": kinds[p.resource] + "List", "apiVersion": version, "metadata": m, "items": items}, nil
}

// values are the fields of an object, by which it is selected.
type values struct{ o map[string]any }

// Get returns a field by its path.
func (v values) Get(field string) string {
	x, _, _ := unstructured.NestedFieldNoCopy(v.o, strings.Split(field, ".")...)
	if x == nil {
		return ""
	}
	return fmt.Sprint(x)
}

// Has reports that an object has every field, if only empty.
func (values) Has(string) bool { return true }

func (s *Server) create(path string, body []byte) (any, error) {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(bytes.TrimSpace(body)); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if s.refuse != nil && s.refuse.Match(body) {
		invalid := apierrors.NewInvalid(schema.GroupKind{Kind: u.GetKind()}, u.GetName(), nil)
		invalid.ErrStatus.Message = s.why
		return nil, invalid
	}
	s.made++
	if u.GetName() == "" {
		u.SetName(u.GetGenerateName() + strconv.Itoa(s.made))
	}
	path += "/" + u.GetName()
	if s.objects[path] != nil {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: u.GetKind()}, u.GetName())
	}
	u.SetUID(types.UID("uid-" + strconv.Itoa(s.made)))
	s.objects[path] = u.Object
	return u.Object, nil
}

// merge applies a merge patch (RFC 7396).
func merge(o, patch map[string]any) {
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(o, k)
		case map[string]any:
			inner, ok := o[k].(map[string]any)
			if !ok {
				inner = map[string]any{}
				o[k] = inner
			}
			merge(inner, v)
		default:
			o[k] = v
		}
	}
}
