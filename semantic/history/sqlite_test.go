package history

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A process that is killed while it appends has lost no job whose Append returned.
func TestKilledWriterLosesNothing(t *testing.T) {
	if where := os.Getenv("MUSTER_TEST_HISTORY"); where != "" {
		h := open(t, where, Options{})
		for i := 0; ; i++ {
			add(t, h, training(fmt.Sprint("j", i), "resnet50", 0, 1+i))
			fmt.Println("appended", fmt.Sprint("j", i)) // until this process is killed
		}
	}
	for _, s := range stores {
		if s.alone {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			where := s.where(t)
			want := killedWriter(t, where)
			if got := ids(t, open(t, where, Options{})); !strings.HasPrefix(got+" ", strings.Join(want, " ")+" ") {
				t.Errorf("there are %q, want at least %q", got, want)
			}
		})
	}
}

// killedWriter returns the jobs that another process said it had appended before it was killed.
func killedWriter(t *testing.T, where string) []string {
	writer := exec.Command(os.Args[0], "-test.run=^TestKilledWriterLosesNothing$")
	writer.Env = append(os.Environ(), "MUSTER_TEST_HISTORY="+where)
	out, err := writer.StdoutPipe()
	if err == nil {
		err = writer.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var appended []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if id, ok := strings.CutPrefix(lines.Text(), "appended "); ok {
			appended = append(appended, id)
		}
		if len(appended) == 20 {
			if err := writer.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := writer.Wait(); err == nil || len(appended) < 20 {
		t.Fatalf("the writer appended %d jobs and ended with %v", len(appended), err)
	}
	return appended
}

// Errors about servers name the server, and never a password.
func TestServersThatAreNotThere(t *testing.T) {
	for where, want := range map[string]string{
		"postgres://muster:secret@127.0.0.1:1/jobs?sslmode=disable": "127.0.0.1",
		"postgres://muster:secret@127.0.0.1:1/jobs?sslmode=perhaps": "sslmode",
		"redis://:secret@127.0.0.1:1/0":                             "127.0.0.1:1",
		"redis://:secret@127.0.0.1:1/0?patience=no":                 "patience",
		"redis://:secret@127.0.0.1:x/0":                             "redis://host:6379/0",
	} {
		_, err := Open(context.Background(), where, Options{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: error %v, want one with %q", where, err, want)
		}
	}
}

// A Redis that would forget jobs is refused.
func TestForgetfulRedis(t *testing.T) {
	where := emptyStream(t)
	options, err := redis.ParseURL(os.Getenv("MUSTER_TEST_REDIS"))
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	ctx := context.Background()
	if err := client.ConfigSet(ctx, "appendfsync", "everysec").Err(); err != nil {
		t.Skipf("its configuration cannot be changed: %v", err)
	}
	_, err = Open(ctx, where, Options{})
	if restored := client.ConfigSet(ctx, "appendfsync", "always").Err(); restored != nil {
		t.Fatal(restored)
	}
	if err == nil || !strings.Contains(err.Error(), "expected appendfsync always, as it would lose jobs; found everysec") {
		t.Errorf("error %v", err)
	}
}

func TestOtherFiles(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other.db")
	db, err := sql.Open("sqlite", other)
	if err == nil {
		_, err = db.Exec("CREATE TABLE songs (name TEXT)")
	}
	if err == nil {
		err = db.Close()
	}
	text := filepath.Join(dir, "text")
	if err == nil {
		err = os.WriteFile(text, []byte(strings.Repeat("this is no database\n", 50)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for where, want := range map[string]string{
		other:                        "another SQLite file",
		text:                         "not a database",
		"":                           "found nothing",
		"mysql://host/db":            `"mysql"`,
		filepath.Join(dir, "no/dir"): "unable to open",
	} {
		if _, err := Open(context.Background(), where, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", where, err, want)
		}
	}
}

// A damaged record is an error that names the job, not an answer.
func TestDamagedRecords(t *testing.T) {
	for _, damage := range []string{"job = '{'", "vector = x'0100'", "job = replace(job, 'completed', 'fine')", "id = 'b'", "vector = x'01000080ff'"} {
		file := filepath.Join(t.TempDir(), "history.db")
		h := open(t, file, Options{})
		add(t, h, training("a", "resnet50", 0, 10))
		db, err := sql.Open("sqlite", file)
		if err == nil {
			_, err = db.Exec("UPDATE jobs SET " + damage)
		}
		if err == nil {
			err = db.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Jobs(context.Background()); err == nil || !strings.Contains(err.Error(), "the record of job") {
			t.Errorf("%s: error %v", damage, err)
		}
	}
}
