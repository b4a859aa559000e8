package diagnose

import (
	"strings"
	"testing"
)

// Numbers that grow in lines that are alike, around an error of one line, say that the program goes on. Those of processes, times and lines of code do not.
func TestCounters(t *testing.T) {
	const failed = "[job] request to storage: Connection reset by peer"
	for _, c := range []struct {
		name, before, after string
		on                  bool
	}{
		{"documents", "processed 1000 docs", "processed 2000 docs\nprocessed 3000 docs", true},
		{"items of a total", "[1/5] alpha", "[2/5] beta\n[3/5] gamma", true},
		{"with times, and counts of failures", "2026-03-01 10:00:01 INFO fetched=10 timeouts=1 error=0", "2026-03-01 10:00:09 INFO fetched=20 timeouts=1 error=1\n2026-03-01 10:00:15 INFO fetched=30 timeouts=2 error=1", true},
		{"of a process", "(worker pid=77) shard 4 done", "(worker pid=77) shard 5 done\n(worker pid=77) shard 6 done", true},
		{"of processes that take turns", "(worker pid=77) shard 4 done", "(worker pid=78) shard 5 done\n(worker pid=79) shard 6 done", true},
		{"with counts of errors behind the numbers", "[job] 100/900 done, 1 failed", "[job] 200/900 done, 2 failed\n[job] 300/900 done, 2 failed", true},
		{"times only", "2026-03-01 10:00:01 pipeline is up", "2026-03-01 10:00:09 pipeline is up\n2026-03-01 10:00:15 pipeline is up", false},
		{"once", "processed 1000 docs", "processed 2000 docs", false},
		{"another run", "processed 10 docs", "processed 90000 docs\nprocessed 90010 docs", false},
		{"waiting", "waiting for the peer, 10 s", "waiting for the peer, 20 s\nwaiting for the peer, 30 s", false},
		{"ranks", "summary of rank 1", "summary of rank 2\nsummary of rank 3", false},
		{"stack", "frame #1 main", "frame #2 main\nframe #3 main", false},
		{"only behind it", "start", "processed 2000 docs\nprocessed 3000 docs\nprocessed 4000 docs", false},
	} {
		v := diagnosed(t, strings.Join([]string{"step 1 loss 2", c.before, failed, c.after, "bye"}, "\n"))
		if on := v.Category == None; on != c.on {
			t.Errorf("%s: goes on %t, want %t", c.name, on, c.on)
		}
	}
}

// What is well again did not fail the job, unless it failed once more.
func TestRecovered(t *testing.T) {
	const down, up = "node-7 port ib0: link is down\n", "node-7 port ib0: link is up\n"
	for text, want := range map[string]Category{
		down: Infrastructure, down + up: None, down + up + down: Infrastructure, down + strings.ReplaceAll(up, "node-7 port ib0", "node-8 port ib1"): Infrastructure,
		down + strings.ReplaceAll(up, "is up", "not recovered"): Infrastructure,
	} {
		if v := diagnosed(t, "start\n"+text); v.Category != want || want != None && *v.SignatureLine != 1 {
			t.Errorf("%q: %+v, want %s", text, v, want)
		}
	}
}

// An error before the last words of a job that ended well is none, if it is of one line and not of the hardware. A job that began again after one, and goes on, has none.
func TestEndedWell(t *testing.T) {
	const steps = "step 10 loss 2\nstep 11 loss 2\nstep 12 loss 2\n"
	const raised = "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    f()\nValueError: bad sample\n"
	const lost = "slurmstepd: error: *** STEP 4.0 ON n[1-4] CANCELLED AT 2026-01-02T03:04:05 DUE TO NODE FAILURE ***\n"
	for text, want := range map[string]Category{
		"OSError: [Errno 28] No space left on device\n":                                           Infrastructure,
		"OSError: [Errno 28] No space left on device\nexit code: 0\n":                             None,
		"OSError: [Errno 28] No space left on device\nexit code: 1\n":                             Infrastructure,
		"exit code: 0\nOSError: [Errno 28] No space left on device\n":                             Infrastructure,
		"OSError: [Errno 28] No space left on device\nexit code: 0\n" + strings.Repeat("-\n", 20): Infrastructure,
		raised + "exit code: 0\n":                                                                 UserScript,
		"NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\nexit code: 0\n":             Infrastructure,
		lost + steps:                            Infrastructure,
		lost + "resuming from step 9\n" + steps: None,
		"[sandbox] " + strings.ReplaceAll(raised, "\n", "\n[sandbox] ") + "\n" + strings.Repeat("-\n", 3) + "step 11 loss 2\nstep 12 loss 2\nstep 13 loss 2\n": None,
		raised + "resuming from step 9\n" + steps: None,
		raised + steps: UserScript,
		"NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\nresuming from step 9\n" + steps: Infrastructure,
	} {
		if v := diagnosed(t, "step 10 loss 3\n"+text); v.Category != want {
			t.Errorf("%q: %s (%s), want %s", text, v.Category, v.Signature, want)
		}
	}
}
