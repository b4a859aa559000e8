package history

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/muster-sched/muster/semantic/metadata"
)

// store is a kind of history that the suite runs on. where returns one that is empty; every history that is opened there
// shares its jobs, unless alone is set.
type store struct {
	name  string
	where func(t *testing.T) string
	alone bool
}

var stores = []store{
	{name: "memory", where: func(*testing.T) string { return "memory:" }, alone: true},
	{name: "sqlite", where: func(t *testing.T) string { return filepath.Join(t.TempDir(), "history.db") }},
	{name: "postgres", where: emptySchema},
	{name: "redis", where: emptyStream},
}

// server returns the URL of a server that the tests may use, and skips the test if there is none.
func server(t *testing.T, variable string) *url.URL {
	t.Helper()
	where := os.Getenv(variable)
	if where == "" {
		t.Skipf("%s is not set: it would be the URL of a server to test with", variable)
	}
	u, err := url.Parse(where)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return u
}

// with returns the URL with another parameter.
func with(u *url.URL, name, value string) string {
	changed, query := *u, u.Query()
	query.Set(name, value)
	changed.RawQuery = query.Encode()
	return changed.String()
}

// emptySchema returns the URL of a new schema of a PostgreSQL database.
func emptySchema(t *testing.T) string {
	u := server(t, "MUSTER_TEST_POSTGRES")
	name := fmt.Sprintf("muster_test_%d", rand.Uint64())
	do := func(statement string) {
		db, err := pgx.Connect(context.Background(), u.String())
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close(context.Background())
		if _, err := db.Exec(context.Background(), statement); err != nil {
			t.Fatal(err)
		}
	}
	do("CREATE SCHEMA " + name)
	t.Cleanup(func() { do("DROP SCHEMA " + name + " CASCADE") })
	return with(u, "search_path", name)
}

// emptyStream returns the URL of a new stream of a Redis server.
func emptyStream(t *testing.T) string {
	u := server(t, "MUSTER_TEST_REDIS")
	key := fmt.Sprintf("muster:test:%d", rand.Uint64())
	options, err := redis.ParseURL(u.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client := redis.NewClient(options)
		defer client.Close()
		if err := client.Del(context.Background(), key).Err(); err != nil {
			t.Error(err)
		}
	})
	return with(u, "key", key)
}

// day is the time of the jobs here: minutes after it.
var day = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func at(minute int) time.Time { return day.Add(time.Duration(minute) * time.Minute) }

// training is a job of ana's that trains a model from one minute to another.
func training(id, model string, from, to int) Job {
	j := Job{
		ID: id, User: "ana", Tenant: "vision", GPUs: 8, Model: "A100", Submit: at(from), Start: at(from), End: at(to),
		Ran: time.Duration(to-from) * time.Minute, Outcome: Completed, SMUse: 0.5, MemoryMiB: 1000,
	}
	j.Metadata.Model = metadata.Model{Name: model, Task: metadata.Vision, Parameters: map[string]string{"depth": "50"}}
	return j
}

func open(t *testing.T, where string, o Options) *History {
	t.Helper()
	h, err := Open(context.Background(), where, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func add(t *testing.T, h *History, jobs ...Job) {
	t.Helper()
	if err := h.Append(context.Background(), jobs...); err != nil {
		t.Fatal(err)
	}
}

// found returns what a history finds for a job, as "id id=", with = after earlier runs of the same job.
func found(t *testing.T, h *History, q Query) string {
	t.Helper()
	matches, err := h.Similar(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, m := range matches {
		if m.Score < q.Threshold || m.Score > 1+1e-9 {
			t.Errorf("%s has the score %g", m.Job.ID, m.Score)
		}
		id := m.Job.ID
		if m.Same {
			id += "="
		}
		ids = append(ids, id)
	}
	return strings.Join(ids, " ")
}

func ids(t *testing.T, h *History) string {
	t.Helper()
	jobs, err := h.Jobs(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for i := range jobs {
		all = append(all, jobs[i].ID)
	}
	return strings.Join(all, " ")
}

// TestStores runs the same suite on every kind of history.
func TestStores(t *testing.T) {
	for _, s := range stores {
		t.Run(s.name, func(t *testing.T) {
			for name, test := range map[string]func(*testing.T, store){
				"a job comes back as it was appended": comesBack,
				"the most similar come first":         mostSimilar,
				"nothing is known before it ended":    noPeeking,
				"tenants":                             tenants,
				"earlier runs come before all others": earlierRuns,
				"a job replaces an older one":         replaces,
				"the first that ended are removed":    bounded,
				"bad jobs change nothing":             refuses,
				"several writers":                     severalWriters,
				"what is kept outlives the process":   outlives,
			} {
				t.Run(name, func(t *testing.T) { test(t, s) })
			}
		})
	}
}

func comesBack(t *testing.T, s store) {
	h := open(t, s.where(t), Options{})
	j := training("j1", "resnet50", 0, 61)
	j.Name, j.Command, j.Outcome = "größer, \"quoted\" \\n", "python train.py --name 'x y'", Failed
	j.Metadata.Training = metadata.Training{Iterations: 90, Unit: metadata.Epoch, LearnRate: 1e-4}
	j.Submit = j.Submit.In(time.FixedZone("x", 3600)).Add(1) // a nanosecond, in another zone
	add(t, h, j)
	jobs, err := h.Jobs(context.Background())
	if err != nil || len(jobs) != 1 {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
	j.Submit = j.Submit.UTC()
	if !reflect.DeepEqual(jobs[0], j) {
		t.Errorf("kept\n%+v\nof\n%+v", jobs[0], j)
	}
}

func mostSimilar(t *testing.T, s store) {
	h := open(t, s.where(t), Options{})
	if got := found(t, h, Query{Job: training("new", "resnet50", 100, 0), K: 3}); got != "" {
		t.Errorf("an empty history finds %q", got)
	}
	add(t, h, training("other", "bert-large", 0, 10), training("same", "resnet50", 0, 20), training("near", "resnet101", 0, 30), training("later", "resnet50", 0, 40))
	failed := training("failed", "resnet50", 0, 50)
	failed.Outcome = Failed
	add(t, h, failed)
	q := Query{Job: training("new", "resnet50", 100, 0), K: 3}
	for want, change := range map[string]func(*Query){
		"later same near":       func(*Query) {},
		"later same near other": func(q *Query) { q.K = 10 },
		"later":                 func(q *Query) { q.K = 1 },
		"later same":            func(q *Query) { q.Threshold = 0.9 },
		"near later same":       func(q *Query) { q.Job.Metadata.Model.Name = "resnet101" },
	} {
		q := q
		change(&q)
		if got := found(t, h, q); got != want {
			t.Errorf("found %q, want %q", got, want)
		}
	}
	unlike := Job{ID: "new", User: "bo", Tenant: "vision", Submit: at(100)}
	if got := found(t, h, Query{Job: unlike, K: 3, Threshold: 0.6}); got != "" {
		t.Errorf("found %q for a job that is like none", got)
	}
}

func noPeeking(t *testing.T, s store) {
	h := open(t, s.where(t), Options{})
	add(t, h, training("late", "resnet50", 0, 30), training("early", "resnet50", 10, 20)) // as writers may be late, too
	for minute, want := range map[int]string{19: "", 20: "early", 29: "early", 30: "late early"} {
		if got := found(t, h, Query{Job: training("new", "resnet50", minute, 0), K: 3}); got != want {
			t.Errorf("at %d found %q, want %q", minute, got, want)
		}
	}
	// What ends later changes no score either.
	q := Query{Job: training("new", "resnet101", 25, 0), K: 3}
	score := func() float64 {
		m, err := h.Similar(context.Background(), q)
		if err != nil || len(m) != 1 {
			t.Fatalf("%v, %v", m, err)
		}
		return m[0].Score
	}
	before := score()
	add(t, h, training("later", "resnet152", 0, 40), training("later still", "vit", 0, 50))
	if after := score(); after != before {
		t.Errorf("the score was %g, and is %g with jobs that end later", before, after)
	}
}

func tenants(t *testing.T, s store) {
	h := open(t, s.where(t), Options{})
	ours, theirs := training("ours", "resnet101", 0, 10), training("theirs", "resnet50", 0, 20)
	theirs.Tenant = "speech"
	add(t, h, ours, theirs)
	q := Query{Job: training("new", "resnet50", 100, 0), K: 3}
	if got := found(t, h, q); got != "ours" {
		t.Errorf("found %q in the tenant", got)
	}
	q.Shared = true
	if got := found(t, h, q); got != "theirs ours" {
		t.Errorf("found %q in a shared history", got)
	}
}

func earlierRuns(t *testing.T, s store) {
	h := open(t, s.where(t), Options{})
	for i, name := range []string{"nightly-1", "nightly-2", "weekly", "nightly-3"} {
		j := training(fmt.Sprint("j", i+1), "resnet50", 0, 10+i)
		j.Name = name
		add(t, h, j)
	}
	new := training("new", "resnet50", 100, 0)
	new.Name = "nightly-4"
	if got := found(t, h, Query{Job: new, K: 2}); got != "j4= j2=" {
		t.Errorf("found %q", got)
	}
	new.GPUs = 16
	if got := found(t, h, Query{Job: new, K: 2}); strings.Contains(got, "=") || got == "" {
		t.Errorf("found %q for a run on more GPUs", got)
	}
}

func replaces(t *testing.T, s store) {
	h := open(t, s.where(t), Options{})
	add(t, h, training("a", "resnet50", 0, 10), training("b", "resnet50", 0, 20))
	if got := ids(t, h); got != "a b" {
		t.Errorf("jobs %q", got)
	}
	add(t, h, training("a", "bert", 0, 30))
	if got := ids(t, h); got != "b a" {
		t.Errorf("jobs %q", got)
	}
	if got := found(t, h, Query{Job: training("new", "resnet50", 100, 0), K: 3, Threshold: 0.9}); got != "b" {
		t.Errorf("found %q", got)
	}
}

func bounded(t *testing.T, s store) {
	where := s.where(t)
	h := open(t, where, Options{Most: 10})
	var want []string
	for i := range 12 {
		add(t, h, training(fmt.Sprintf("j%02d", i), "resnet50", 0, 100-i))
		if i < 10 {
			want = append(want, fmt.Sprintf("j%02d", i))
		}
	}
	slices.Reverse(want)
	if got := ids(t, h); got != strings.Join(want, " ") {
		t.Errorf("jobs %q, want the ten that ended last: %q", got, want)
	}
	if !s.alone {
		if got := ids(t, open(t, where, Options{})); got != strings.Join(want, " ") {
			t.Errorf("kept %q, want %q", got, want)
		}
		for i := range 20 { // processes that read, and add a job each
			h := open(t, where, Options{Most: 10})
			ids(t, h)
			add(t, h, training(fmt.Sprintf("k%02d", i), "resnet50", 0, 200+i))
		}
		if got := strings.Fields(ids(t, open(t, where, Options{}))); len(got) > 12 || got[len(got)-1] != "k19" {
			t.Errorf("%d jobs are kept, %q; want at most a tenth more than 10, and the last one", len(got), got)
		}
	}
}

func refuses(t *testing.T, s store) {
	h := open(t, s.where(t), Options{})
	for want, change := range map[string]func(*Job){
		"needs an id":     func(j *Job) { j.ID = "" },
		"time of its end": func(j *Job) { j.End = time.Time{} },
		"ran for":         func(j *Job) { j.Ran = -1 },
		"outcome":         func(j *Job) { j.Outcome = "fine" },
		"SM use":          func(j *Job) { j.SMUse = 1.5 },
		"GPUs":            func(j *Job) { j.GPUs = -1 },
	} {
		bad := training("bad", "resnet50", 0, 10)
		change(&bad)
		if err := h.Append(context.Background(), training("good", "resnet50", 0, 10), bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	if got := ids(t, h); got != "" {
		t.Errorf("jobs %q", got)
	}
	if _, err := h.Similar(context.Background(), Query{Job: training("new", "x", 1, 0)}); err == nil {
		t.Error("no error for 0 jobs to find")
	}
}

// Several goroutines append through several handles, as several processes do, while others ask.
func severalWriters(t *testing.T, s store) {
	const writers, each = 4, 15
	where := s.where(t)
	handles := []*History{open(t, where, Options{})}
	for len(handles) < 3 && !s.alone {
		handles = append(handles, open(t, where, Options{}))
	}
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			h := handles[w%len(handles)]
			for i := range each {
				if err := h.Append(context.Background(), training(fmt.Sprintf("w%d-%02d", w, i), "resnet50", 0, 1+i)); err != nil {
					t.Error(err)
				}
				// What is appended can be found at once.
				jobs, err := h.Jobs(context.Background())
				if err != nil || !slices.ContainsFunc(jobs, func(j Job) bool { return j.ID == fmt.Sprintf("w%d-%02d", w, i) }) {
					t.Errorf("job %d of writer %d is not there: %v", i, w, err)
				}
			}
		})
	}
	all.Wait()
	want := ids(t, handles[0])
	if n := len(strings.Fields(want)); n != writers*each {
		t.Errorf("%d jobs, want %d", n, writers*each)
	}
	for _, h := range handles[1:] {
		if got := ids(t, h); got != want {
			t.Errorf("another handle has %q, want %q", got, want)
		}
	}
}

func outlives(t *testing.T, s store) {
	if s.alone {
		t.Skip("a history in memory is forgotten")
	}
	where := s.where(t)
	h, err := Open(context.Background(), where, Options{})
	if err != nil {
		t.Fatal(err)
	}
	add(t, h, training("a", "resnet50", 0, 10), training("b", "resnet101", 0, 20))
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if got := found(t, open(t, where, Options{}), Query{Job: training("new", "resnet50", 100, 0), K: 3}); got != "a b" {
		t.Errorf("found %q", got)
	}
}
