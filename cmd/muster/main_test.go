package main

import (
	"errors"
	"flag"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/muster-sched/muster/internal/fakeapi"
)

var update = flag.Bool("update", false, "write what the commands print into the scripts")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"muster": main, "kubectl-muster": main})
}

// The scripts read as what a user types and sees. Beside testscript's own
// commands they have three:
//
//	exits 2 muster …   the command ends with this exit code
//	says 'line'        it wrote exactly this line to stderr, and nothing to stdout
//	api FILE [DENIED…] from now on the kubeconfig leads to a cluster of the file's
//	                   objects, which denies requests that match
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		UpdateScripts:       *update,
		RequireUniqueNames:  true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
			"says":  says,
			"api":   api,
		},
	})
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
