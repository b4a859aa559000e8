package diagnose

import (
	"strings"
	"testing"
)

// A thread, a task or a child process may crash, and the job goes on: then that is no failure. What Python's logger prints of itself is none either.
func TestAside(t *testing.T) {
	const steps = "step 11 loss 2\nstep 12 loss 2\nstep 13 loss 2\n"
	const raised = "Traceback (most recent call last):\n  File \"/usr/lib/python3.11/multiprocessing/process.py\", line 314, in _bootstrap\n    self.run()\n  File \"/w/plot.py\", line 12, in draw\n    plot()\nValueError: bad size\n"
	const logging = "--- Logging error ---\nTraceback (most recent call last):\n  File \"/usr/lib/python3.11/logging/__init__.py\", line 1113, in emit\n    stream.write(msg)\nUnicodeEncodeError: 'ascii' codec can't encode\nCall stack:\n  File \"/w/main.py\", line 88, in <module>\n    trainer.run()\nMessage: '%s'\nArguments: ('x',)\n"
	for text, want := range map[string]Category{
		raised + steps:                                                   UserScript,
		"Process plotter-1:\n" + raised + steps:                          None,
		"Process plotter-1:\n" + raised:                                  UserScript,
		"Exception in thread Thread-3 (draw):\n" + raised + steps:        None,
		"Exception in thread Thread-3 (draw):\n" + raised:                UserScript,
		"Process rank-1:\n" + raised + strings.Repeat(".\n", 9):          UserScript,
		"[exporter] Stale file handle\n" + steps:                         None,
		"trainer: Stale file handle\n" + steps:                           Infrastructure,
		logging + steps:                                                  None,
		logging + "exit code: 0\n":                                       None,
		"exporter | panic: index out of range\n" + steps:                 None,
		"exporter | panic: index out of range\n":                         None, // a panic is looked for at the beginning of a line
		"panic: index out of range\n":                                    UserScript,
		"panic: index out of range\n\ngoroutine 41 [running]:\n" + steps: None,
		"thread 'worker-3' panicked at src/a.rs:8:14:\n" + steps:         None,
		"thread 'main' panicked at src/a.rs:8:14:\n" + steps:             UserScript,
		"WARNING: " + strings.ReplaceAll(strings.TrimSpace(raised), "\n", "\nWARNING: ") + "\n" + steps: None,
		"WARNING: " + strings.ReplaceAll(strings.TrimSpace(raised), "\n", "\nWARNING: ") + "\n":         UserScript,
		"exporter | Segmentation fault (core dumped)\n" + steps:                                         None,
		"exporter | Segmentation fault (core dumped)\n":                                                 Framework,
		"[rank3] Segmentation fault (core dumped)\n" + steps:                                            Framework,
		"Segmentation fault (core dumped)\n" + steps:                                                    Framework,
	} {
		if v := diagnosed(t, "step 10 loss 3\n"+text); v.Category != want {
			t.Errorf("%q: %s (%s), want %s", text, v.Category, v.Signature, want)
		}
	}
}

// An error that a library raises while the program imports it is the library's; one that it raises at a call is the program's.
func TestRaisedByImport(t *testing.T) {
	const library = "  File \"/env/lib/python3.11/site-packages/google/protobuf/descriptor.py\", line 553, in __new__\n    check()\nTypeError: Descriptors cannot be created directly.\n"
	for source, want := range map[string]Category{"import tensorboard": Framework, "from x import y": Framework, "opt = AdamW(lr='1e-4')": UserScript} {
		text := "Traceback (most recent call last):\n  File \"/w/a.py\", line 1, in <module>\n    " + source + "\n" + library
		if v := diagnosed(t, text); v.Category != want {
			t.Errorf("%s: %s, want %s", source, v.Category, want)
		}
	}
	// So is an assertion, but for one in the function that the program calls itself.
	const call = "Traceback (most recent call last):\n  File \"/w/a.py\", line 1, in <module>\n    att = Attention(100, 12)\n"
	const frame = "  File \"/env/lib/python3.11/site-packages/torch/nn/modules/activation.py\", line 1041, in f\n    check()\n"
	for text, want := range map[string]Category{call + frame: UserScript, call + frame + frame: Framework} {
		if v := diagnosed(t, text+"AssertionError: bad\n"); v.Category != want {
			t.Errorf("%s: %s, want %s", text, v.Category, want)
		}
	}
}

// An error that the program caught and printed is over if the job's last words are that it ended well, and one of a container if it is ready again.
func TestCaught(t *testing.T) {
	const raised = "Traceback (most recent call last):\n  File \"/w/flow.py\", line 31, in pull\n    return fetch(url)\nConnectionResetError: [Errno 104] Connection reset by peer\n"
	const container = "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n"
	for text, want := range map[string]Category{
		raised:                    Infrastructure,
		raised + "exit code: 0\n": None,
		strings.Replace(raised, "in pull", "in <module>", 1) + "exit code: 0\n":                                                                   Infrastructure,
		"    " + strings.ReplaceAll(strings.TrimSpace(strings.Replace(raised, "in pull", "in <module>", 1)), "\n", "\n    ") + "\nexit code: 0\n": None, // text that a program shows
		"training is complete\nrsync: write failed on \"/project/m.pt\": Disk quota exceeded (122)\n":                                             Infrastructure,
		"training is complete\nNCCL WARN Connection closed by remote peer n4\n":                                                                   None,
		container:                         Infrastructure,
		container + "    Ready:  True\n":  None,
		container + "    Ready:  False\n": Infrastructure,
	} {
		if v := diagnosed(t, "step 1 loss 2\n"+text); v.Category != want {
			t.Errorf("%q: %s (%s), want %s", text, v.Category, v.Signature, want)
		}
	}
}

// A command that failed, as a program shows it, is over if the program goes on after it; at the start, too, where a launcher's report makes what a program can do without a failure.
func TestFailedCommand(t *testing.T) {
	const shown = "    Traceback (most recent call last):\n      File \"/repo/repro.py\", line 4, in <module>\n        solve(None)\n    TypeError: 'NoneType' object is not iterable\n    [exit code: 1]\n"
	const turns = "[turn 12] edits solver.py\n[turn 13] edits solver.py\n"
	for text, want := range map[string]Category{
		"[turn 11] edits solver.py\n" + shown + turns: None,
		"[turn 11] edits solver.py\n" + shown:         UserScript,
		"[turn 11] edits solver.py\n" + strings.Replace(shown, "    [exit code: 1]\n", "", 1) + turns + "process failed with exit code 1\n": UserScript,
	} {
		if v := diagnosed(t, text); v.Category != want {
			t.Errorf("%q: %s (%s), want %s", text, v.Category, v.Signature, want)
		}
	}
}

// If a process said what it did before an error of its own, it speaks for itself: that others go on does not say that it lives. Steps do, whoever prints them.
func TestWhoGoesOn(t *testing.T) {
	const failed = "trainer: request to storage: Connection reset by peer\n"
	const rollouts = "rollout-3: 131 episodes, return 40.9\nrollout-3: 130 episodes, return 41.2\nrollout-3: 129 episodes, return 41.1\nrollout-3: 132 episodes, return 41.1\n"
	const before = "trainer: update 410, kl 0.011\nrollout-3: 128 episodes, return 41.1\n"
	for text, want := range map[string]Category{
		before + failed + failed + rollouts: Infrastructure,
		before + failed + rollouts:          Infrastructure,
		before + failed + "trainer: update 411, kl 0.011\ntrainer: update 412, kl 0.012\n": None,
		"rollout-3: 128 episodes, return 41.1\n" + failed + rollouts:                       None,
		before + failed + "step 11 loss 2\nstep 12 loss 2\nstep 13 loss 2\n":               None,
	} {
		if v := diagnosed(t, "step 10 loss 3\n"+text); v.Category != want {
			t.Errorf("%q: %s (%s), want %s", text, v.Category, v.Signature, want)
		}
	}
}

// A thread that writes may die while a few more steps fill its queue: two are not enough, though their numbers grow.
func TestFewSteps(t *testing.T) {
	const writer = "step 10 loss 2\nException in thread Thread-4 (writer):\nTraceback (most recent call last):\n  File \"/usr/lib/python3.11/threading.py\", line 1045, in _bootstrap_inner\n    self.run()\nOSError: [Errno 28] No space left on device\nstep 11 loss 2\nstep 12 loss 2\n"
	for text, want := range map[string]Category{writer: Infrastructure, writer + "step 13 loss 2\n": None} {
		if v := diagnosed(t, text); v.Category != want {
			t.Errorf("%q: %s (%s), want %s", text, v.Category, v.Signature, want)
		}
	}
}
