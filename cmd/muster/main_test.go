package main

import (
	"errors"
	"flag"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/muster-sched/muster/internal/fakeapi"
	"github.com/muster-sched/muster/internal/fakellm"
)

var update = flag.Bool("update", false, "write what the commands print into the scripts")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"muster": main, "kubectl-muster": main})
}

// The scripts read as what a user types and sees. Beside testscript's own
// commands they have these:
//
//	exits 2 muster …   the command ends with this exit code
//	says 'line'        it wrote exactly this line to stderr, and nothing to stdout
//	model REPLY…       from now on semantic.yaml names a model that gives these replies, the last one again and again:
//	                   what a file says, read=PATH of a file to read, an HTTP status, or vectors, which is an
//	                   endpoint for embeddings
//	sent PATTERN       a request to the model has it; ! sent PATTERN: none does
//	api FILE [DENIED…] from now on the kubeconfig leads to a cluster of the file's
//	                   objects, which denies requests that match
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		UpdateScripts:       *update,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Values[asked{}] = new(scriptModel)
			e.Setenv("LLM_KEY", "sk-test-0123456789abcdef")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
			"says":  says,
			"api":   api,
			"model": model,
			"sent":  sent,
		},
	})
}

// asked is the model of a script.
type asked struct{}

func model(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: model REPLY…")
	}
	var replies []fakellm.Reply
	kind := "llm"
	for _, a := range args {
		switch status, err := strconv.Atoi(a); {
		case a == "vectors":
			kind = "embedding"
			replies = append(replies, fakellm.Vectors(func(text string) []float32 { return []float32{float32(strings.Count(text, "step")), 1} }))
		case err == nil:
			replies = append(replies, fakellm.Raw(status, `{"error":{"message":"Bearer `+ts.Getenv("LLM_KEY")+` is not welcome"}}`))
		case strings.HasPrefix(a, "read="):
			replies = append(replies, fakellm.Calls(fakellm.Call{Name: "file_read", Arguments: `{"path":"` + strings.TrimPrefix(a, "read=") + `"}`}))
		default:
			replies = append(replies, fakellm.Says(ts.ReadFile(a)))
		}
	}
	server := fakellm.New(replies...)
	ts.Defer(server.Close)
	ts.Value(asked{}).(*scriptModel).server = server
	ts.Check(os.WriteFile(filepath.Join(ts.Getenv("WORK"), "semantic.yaml"), []byte(kind+":\n  url: "+server.URL+"/v1\n  model: test\n  keyEnv: LLM_KEY\n  retries: 0\n"), 0o600))
}

type scriptModel struct{ server *fakellm.Server }

func sent(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: sent PATTERN")
	}
	pattern := regexp.MustCompile(args[0])
	found := slices.ContainsFunc(ts.Value(asked{}).(*scriptModel).server.Requests(), func(r fakellm.Request) bool { return pattern.MatchString(r.Said()) })
	if found == neg {
		ts.Fatalf("a request that matches %s: %v", pattern, found)
	}
}

func api(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: api FILE [DENIED…]")
	}
	fake, err := fakeapi.New(ts.ReadFile(args[0]), time.Now())
	ts.Check(err)
	for _, denied := range args[1:] {
		fake.Forbid(regexp.MustCompile(denied))
	}
	server := httptest.NewServer(fake)
	ts.Defer(server.Close)
	config := filepath.Join(ts.Getenv("WORK"), "kubeconfig")
	ts.Check(os.WriteFile(config, []byte(`apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test, namespace: team-a}}]
clusters: [{name: test, cluster: {server: "`+server.URL+`"}}]
users: [{name: test, user: {}}]
`), 0o600))
	ts.Setenv("KUBECONFIG", config)
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit := (*exec.ExitError)(nil)
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func says(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: says LINE")
	}
	if got, want := ts.ReadFile("stderr"), args[0]+"\n"; got != want {
		ts.Fatalf("stderr is %q, want %q", got, want)
	}
	if got := ts.ReadFile("stdout"); got != "" {
		ts.Fatalf("stdout is %q, want nothing", got)
	}
}
