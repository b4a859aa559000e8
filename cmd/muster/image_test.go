package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-sched/muster/checkpoint/criu"
	"github.com/muster-sched/muster/gpu/gputest"
)

// user runs commands with words of theirs replaced, as by strings.NewReplacer, and fails the test if one ends with another exit code than
// expected, or prints no line with one of the texts. An error is one line.
func user(t *testing.T, words ...string) func(code int, command string, want ...string) {
	replacer := strings.NewReplacer(words...)
	return func(code int, command string, want ...string) {
		t.Helper()
		command = replacer.Replace(command)
		var out, problem strings.Builder
		if got := run(strings.Fields(command), strings.NewReader(""), &out, &problem); got != code {
			t.Fatalf("muster %s: exit code %d; expected %d\n%s%s", command, got, code, out.String(), problem.String())
		}
		for _, w := range want {
			if !strings.Contains(out.String()+problem.String(), w) {
				t.Errorf("muster %s: expected %q in\n%s%s", command, w, out.String(), problem.String())
			}
		}
		if code != 0 && strings.Count(problem.String(), "\n") != 1 {
			t.Errorf("muster %s: %q is not one line", command, problem.String())
		}
	}
}

// A user pauses two ranks, moves their memory to an encrypted image, and needs it to go on.
func TestImages(t *testing.T) {
	n := gputest.NewNode(t, 64)
	t.Setenv("MUSTER_GPU_DIR", n.Dir)
	store, key := filepath.Join(t.TempDir(), "images"), filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("ab", 32)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, q := n.Start(t), n.Start(t)
	pids := strconv.Itoa(p.PID) + " " + strconv.Itoa(q.PID)
	muster := user(t, "PIDS", pids, "PID", strconv.Itoa(p.PID), "AT", "--store "+store+" --key "+key)
	p.Do("alloc %d", 4<<20)
	q.Do("alloc %d", 4<<20)
	sum := p.Do("sum 0 %d", 4<<20)
	muster(1, "image save PIDS AT", "found Running: muster pause it first")
	if _, err := os.Stat(store); err == nil {
		t.Error("a save that failed began a store")
	}
	muster(0, "pause PIDS")
	muster(0, "image save PIDS AT --name llama --move", ".llama: 8 MiB, of which 0 MiB are new in the store; the memory on the host is free")
	muster(1, "image save PIDS AT", "its saved memory is not there")
	muster(1, "resume PIDS", "muster image restore --pid "+strconv.Itoa(p.PID))
	muster(0, "image list AT", "llama", "8 MiB")
	muster(0, "image list AT --json", `"name":"llama"`, `"saves":1`)
	muster(0, "image show llama AT", strconv.Itoa(p.PID), "    1")
	muster(0, "image verify AT", ".llama is whole")
	muster(1, "image delete llama AT", "can only go on with it")
	muster(0, "image restore --pid PID AT", "restored")
	muster(0, "image restore llama AT", "was there", "restored")
	muster(0, "resume PIDS")
	if got := p.Do("sum 0 %d", 4<<20); got != sum {
		t.Errorf("%s before, %s after", sum, got)
	}
	muster(1, "image restore llama AT", "expected a paused process; found Running")
	muster(0, "image delete llama AT", "is deleted")
	muster(0, "image collect AT --dry-run", "would remove 2 regions")
	muster(0, "image collect AT", "removed 2 regions")
	muster(1, "image show llama AT", `the store has no image "llama"`)
	muster(2, "image list --store "+store, "its images are encrypted: expected --key")
}

// A user checkpoints a process twice: what did not change in between is in the store already, as long as it was not collected.
func TestCheckpointAgain(t *testing.T) {
	n := gputest.NewNode(t, 64)
	t.Setenv("MUSTER_GPU_DIR", n.Dir)
	p := n.Start(t)
	muster := user(t, "PID", strconv.Itoa(p.PID), "AT", "--store "+filepath.Join(t.TempDir(), "images"))
	p.Do("alloc %d", 8<<20)
	checkpoint := func(changed int, want string) {
		t.Helper()
		p.Send("train 0 %d 10", changed) // to bytes that do not compress
		p.Until("sum ")
		sum := p.Do("sum 0 %d", 8<<20)
		muster(0, "checkpoint PID AT", ": 8 MiB, of which "+want+" are new in the store; the memory on the host is free")
		muster(0, "restore PID AT", "Running")
		if got := p.Do("sum 0 %d", 8<<20); got != sum {
			t.Errorf("%s before, %s after", sum, got)
		}
	}
	checkpoint(8<<20, "8 MiB")
	checkpoint(2<<20, "2 MiB")
	checkpoint(0, "0 MiB")
	muster(0, "image collect AT", "removed")
	checkpoint(0, "8 MiB")
}

// A user moves a whole process to an image, and brings it back. What cannot be is said in a line.
func TestWholeProcess(t *testing.T) {
	if err := (criu.Program{}).Check(t.Context()); err != nil {
		t.Skip(err)
	}
	n := gputest.NewNode(t, 64)
	program, driver, environment := n.Caller()
	for _, set := range append(environment, "MUSTER_GPU_DIR="+n.Dir, "MUSTER_GPU_CALL="+program, "MUSTER_GPU_DRIVER="+driver) {
		name, value, _ := strings.Cut(set, "=")
		t.Setenv(name, value)
	}
	store := filepath.Join(t.TempDir(), "images")
	p, piped := n.StartWithFiles(t), n.Start(t)
	muster := user(t, "PIPED", strconv.Itoa(piped.PID), "PID", strconv.Itoa(p.PID), "AT", "--store "+store)
	p.Do("alloc %d", 4<<20)
	sum := p.Do("sum 0 %d", 4<<20)
	muster(2, "checkpoint PID PIPED --process AT", "--process: expected one PID")
	muster(2, "checkpoint PID --ghost AT", "--ghost: expected it with --process")
	muster(1, "checkpoint 999999999 --process AT", "there is no process 999999999")
	muster(1, "checkpoint 1 --process AT", "expected a process from which this command does not descend; found 1")
	muster(1, "checkpoint PIPED --process AT", "is a pipe of process", "all processes are as before")
	muster(0, "checkpoint PID --process --ghost AT --name llama", "the processes have ended; muster restore --image")
	p.Wait()
	muster(0, "image show llama AT", strconv.Itoa(p.PID), "with the processes themselves: muster restore --image")
	muster(0, "image list AT --json", `"whole":true`)
	muster(1, "image restore llama AT", "has the processes themselves, which have ended: muster restore --image")
	muster(2, "restore PID --image llama AT", "--image: expected no PID with it")
	muster(1, "restore --image lama AT", `the store has no image "lama"`)
	muster(0, "restore --image llama AT", "Running")
	if got := p.Do("sum 0 %d", 4<<20); got != sum {
		t.Errorf("%s before, %s after", sum, got)
	}
	muster(1, "restore --image llama AT", `the store has no image "llama"`)
	if got := piped.Do("left"); !strings.HasPrefix(got, "left ") {
		t.Error(got)
	}
}

func TestImageCommandsThatAreWrong(t *testing.T) {
	t.Setenv("MUSTER_GPU_DIR", t.TempDir())
	bad, open := filepath.Join(t.TempDir(), "bad"), filepath.Join(t.TempDir(), "open")
	if os.WriteFile(bad, []byte("abc"), 0o600) != nil || os.WriteFile(open, []byte("abc"), 0o600) != nil || os.Chmod(open, 0o644) != nil {
		t.Fatal("the keys cannot be written")
	}
	nowhere := " --store " + filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"image save", 2, "expected a PID"},
		{"image save 7 --name a/b" + nowhere, 2, "--name: expected 1 to 64 letters"},
		{"image save 999999999" + nowhere, 1, "process 999999999: the process has ended"},
		{"image list", 2, "--store: expected a folder, or s3://BUCKET/PREFIX; found none"},
		{"image list --store s3://", 2, "--store: expected s3://BUCKET/PREFIX"},
		{"image list" + nowhere, 2, "no images were saved there yet"},
		{"image list --key " + bad + nowhere, 2, "expected a key of 64 hexadecimal digits"},
		{"image list --key " + open + nowhere, 2, "expected a file that others cannot read; found mode 0644"},
		{"image list --key " + bad + "x" + nowhere, 2, "no such file"},
		{"image restore" + nowhere, 2, "expected an image, or --pid; found 0 arguments"},
		{"image restore --pid -1" + nowhere, 2, "expected the ID of a process"},
		{"image show" + nowhere, 2, "expected IMAGE; found 0 arguments"},
		{"run", 2, "expected a command; found nothing"},
		{"run true", 2, "--name: expected a name by which the job is found again; found none"},
		{"run --name a/b true", 2, "--name: expected 1 to 64 letters"},
		{"run --name a true", 2, "--store: expected a folder, or s3://BUCKET/PREFIX; found none"},
		{"run --name a --within 5s true", 2, "and more than that --within; found 10s and 5s"},
		{"image colect", 2, `did you mean "collect"?`},
	} {
		var out, problem strings.Builder
		code := run(strings.Fields(c.args), strings.NewReader(""), &out, &problem)
		if code != c.code || !strings.Contains(problem.String(), c.want) || strings.Count(problem.String(), "\n") != 1 {
			t.Errorf("muster %s: exit code %d, %q", c.args, code, problem.String())
		}
	}
}
