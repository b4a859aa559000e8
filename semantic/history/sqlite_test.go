package history

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Who waits for another writer of the file waits no longer when the context is done.
func TestWaitEndsWithContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	h := open(t, path, Options{})
	add(t, h, training("j", "resnet50", 0, 1))
	other, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	tx, err := other.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := h.Append(ctx, training("k", "resnet50", 0, 1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Append: %v, want %v", err, context.DeadlineExceeded)
	}
	if _, err := Open(ctx, path, Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Open: %v, want %v", err, context.DeadlineExceeded)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if got := ids(t, open(t, path, Options{})); got != "j" {
		t.Errorf("there are %q, want j alone", got)
	}
}

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
		text:                         "expected a history; found a file that is damaged, or something else",
		dir:                          "expected a file; found a folder",
		"":                           "found nothing",
		"mysql://host/db":            `"mysql"`,
		filepath.Join(dir, "no/dir"): "no/dir: expected a folder that can be written; found: no such file or directory",
	} {
		if _, err := Open(context.Background(), where, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", where, err, want)
		}
	}
}

// What only asks creates no file, and what is asked before the first job is added finds the file of another process.
func TestTheFirstJobCreatesTheFile(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	where, empty := filepath.Join(dir, "jobs.db"), filepath.Join(dir, "empty.db")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{where, empty} {
		if _, err := Open(ctx, f, Options{Existing: true}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: error %v", f, err)
		}
	}
	asks, adds := open(t, where, Options{}), open(t, where, Options{})
	if got := ids(t, asks); got != "" {
		t.Errorf("there are %q before any job was added", got)
	}
	if _, err := adds.Similar(ctx, Query{Job: training("b", "vit", 20, 30), K: 1}); err != nil {
		t.Error(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("files %v, %v, want empty.db alone", files, err)
	}
	add(t, adds, training("a", "resnet50", 0, 10))
	if got := ids(t, asks); got != "a" {
		t.Errorf("there are %q, want a", got)
	}
	add(t, asks, training("b", "vit", 20, 30))
	if got := ids(t, open(t, where, Options{Existing: true})); got != "a b" {
		t.Errorf("there are %q, want a and b", got)
	}
}

// A file of which a part is lost is damaged, in words that need no knowledge of SQL.
func TestDamagedFile(t *testing.T) {
	where := filepath.Join(t.TempDir(), "jobs.db")
	h := open(t, where, Options{})
	for i := range 100 {
		add(t, h, training(fmt.Sprint("j", i), "resnet50", 0, 10))
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(where)
	if err != nil {
		t.Fatal(err)
	}
	for name, broken := range map[string][]byte{
		"cut off":     data[:len(data)/2],
		"overwritten": append(data[:4096:4096], bytes.Repeat([]byte{0xff}, len(data)-4096)...),
	} {
		if err := os.WriteFile(where, broken, 0o600); err != nil {
			t.Fatal(err)
		}
		h, err := Open(context.Background(), where, Options{})
		if err == nil {
			_, err = h.Jobs(context.Background())
			h.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "expected a history; found a file that is damaged, or something else") {
			t.Errorf("%s: error %v", name, err)
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
