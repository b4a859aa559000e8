package diagnose

import (
	"strings"
	"testing"
)

// Lines like those right before an error, with other numbers, say that the program goes on. Lines that only wait, that say the same again, or come late, do not.
func TestRecurring(t *testing.T) {
	const failed = "[job] request to storage: Connection reset by peer"
	for _, c := range []struct {
		name, before, after string
		on                  bool
	}{
		{"measures", "it/s 3.1 psnr 24.11", "it/s 3.0 psnr 24.19\nit/s 3.2 psnr 24.02\nit/s 3.1 psnr 24.31", true},
		{"counts of each part", "accepted 128, rejected 4 (version 11)", "accepted 121, rejected 6 (version 12)\naccepted 127, rejected 2 (version 13)\naccepted 126, rejected 1 (version 14)", true},
		{"twice only", "it/s 3.1 psnr 24.11", "it/s 3.0 psnr 24.19\nit/s 3.2 psnr 24.02", false},
		{"the same numbers", "it/s 3.1 psnr 24.11", strings.Repeat("it/s 3.1 psnr 24.11\n", 5), false},
		{"times", "10:00:01 pipeline 4 is up", "10:00:02 pipeline 4 is up\n10:00:03 pipeline 4 is up\n10:00:04 pipeline 4 is up", false},
		{"waiting", "waiting for the peer, 10.5 s", "waiting for the peer, 9.5 s\nwaiting for the peer, 8.5 s\nwaiting for the peer, 7.5 s", false},
		{"the same error", failed, "[job] request 3 to storage: Connection reset by peer\n[job] request 2 to storage: Connection reset by peer\n[job] request 1 to storage: Connection reset by peer", false},
		{"of a GPU that idles", "gpu 0 util 97 % 611.2 W", "gpu 0 util 3 % 81.2 W\ngpu 0 util 1 % 71.2 W\ngpu 0 util 2 % 72.2 W", false},
		{"late", "it/s 3.1 psnr 24.11", strings.Repeat("-\n", 20) + "it/s 3.0 psnr 24.19\nit/s 3.2 psnr 24.02\nit/s 3.1 psnr 24.31", false},
		{"another run that goes on", "accepted 8 of version 9", "accepted 4000 of version 9000\naccepted 4001 of version 9001\naccepted 4007 of version 9002\naccepted 4002 of version 9003\naccepted 4009 of version 9004", false},
		{"another run", "accepted 128 of version 90000", "accepted 121 of version 12\naccepted 127 of version 13\naccepted 126 of version 14", false},
	} {
		v := diagnosed(t, strings.Join([]string{"step 1 loss 2", c.before, failed, c.after, "bye"}, "\n"))
		if on := v.Category == None; on != c.on {
			t.Errorf("%s: goes on %t, want %t", c.name, on, c.on)
		}
	}
}

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

// A table of several jobs says what became of others. One of this job alone, or of the parts of a node, is about it.
func TestTables(t *testing.T) {
	const head = "JobID      JobName    Partition  State      ExitCode\n---------- ---------- ---------- ---------- --------\n"
	const failed = "811        train      a100       OUT_OF_ME+    0:125\n"
	for text, want := range map[string]Category{
		head + failed: Infrastructure,
		head + failed + "811.batch  batch                 OUT_OF_ME+    0:125\n":                                                               Infrastructure,
		head + failed + "812        eval       a100       COMPLETED       0:0\n":                                                               None,
		head + "810        eval       a100       NODE_FAIL       0:0\n" + failed:                                                               None,
		head + failed + "812        eval       a100       COMPLETED       0:0\nslurmstepd: error: Detected 1 oom_kill event in StepId=813.0\n": Infrastructure,
		"model      batch  result\nllama-8b       1  41.1\nllama-8b     256  CUDA out of memory\n":                                             None,
		"model      batch  result\nllama-8b       1  41.1\nllama-70b    256  CUDA out of memory\n":                                             None,
		"model      batch  result\nllama-8b       1  41.1\nllama-70b      1  40.1\n\ntorch.OutOfMemoryError: CUDA out of memory.\n":            Framework,
		"host   check        result\nn1     gpu          pass\nn2     gpu          GPU is lost\n":                                              Infrastructure,
	} {
		if v := diagnosed(t, text); v.Category != want {
			t.Errorf("%q: %s (%s), want %s", text, v.Category, v.Signature, want)
		}
	}
}

// Reports that nothing is wrong are none of a failure, whatever words they have; those of the kernel are, whatever it does next.
func TestReports(t *testing.T) {
	for text, want := range map[string]Category{
		"    Remapping Failure Occurred        : No\n":                                                         None,
		"    Remapping Failure Occurred        : Yes\n":                                                        Infrastructure,
		"n1:41:41 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'\n":                        None,
		"[8110.41] CIFS: VFS: \\\\fs1 has not responded in 180 seconds. Reconnecting...\n":                     Infrastructure,
		"error: etcdserver: request timed out\n{\"msg\":\"phase changed\",\"to\":\"Succeeded\"}\n":             None,
		"health: HEALTH_ERR 4 osds down; 41 pgs inactive\n":                                                    Infrastructure,
		"health: HEALTH_WARN 1 osds down; Degraded data redundancy: 4/8 objects degraded\nhealth: HEALTH_OK\n": None,
		"CRITICAL: psu_1 power supply lost redundancy\n":                                                       Infrastructure,
		"MUTED CRITICAL: psu_1 power supply lost redundancy (until Friday)\n":                                  None,
		"memtest: gpu 2: 41 errors in 1 pass\n":                                                                Infrastructure,
		"memtest: gpu 2: 0 errors in 4 passes\n":                                                               None,
		"Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    f()\nKeyError: 0\n":     UserScript,
	} {
		if v := diagnosed(t, text); v.Category != want {
			t.Errorf("%q: %s (%s), want %s", text, v.Category, v.Signature, want)
		}
	}
}

// Fewer devices than there should be are a fault of the node; as many are none.
func TestFewer(t *testing.T) {
	for line, want := range map[string]bool{
		"lspci shows 7 NVIDIA devices, want 8":     true,
		"found 8 NVIDIA devices, want 8":           false,
		"expected 8 GPUs, found 7":                 true,
		"expected 8 GPUs, found 8":                 false,
		"using 7 GPUs for 8 jobs, expected in 3 h": false,
		"using 4 GPUs of 8":                        false,
	} {
		if got := fewer([]byte(line)); got != want {
			t.Errorf("%s: %t, want %t", line, got, want)
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

// After a burst of errors, lines like those before all of it say that the job goes on. At the start, so does a number that begins to grow.
func TestBursts(t *testing.T) {
	const before = "step 1 loss 2\n[a-3] task 41 done in 8.11 s, size 4096\n"
	const burst = "worker 5 exited with 'signal 9 (SIGKILL)'\nTask handler raised error: WorkerLostError('signal 9 (SIGKILL)')\n"
	const after = "[a-3] task 42 done in 8.02 s, size 4096\n[a-9] task 17 done in 8.41 s, size 4096\n"
	const glog = "W0412 10:00:00.1 41 x.py:1] "
	const warned = glog + "Traceback (most recent call last):\n" + glog + "  File \"/w/m.py\", line 3, in <module>\n" + glog + "    f()\n" + glog + "RuntimeError: CUDNN_STATUS_NOT_SUPPORTED\n"
	const missing = "  File \"/env/lib/python3.11/site-packages/ray/dashboard/head.py\", line 14, in <module>\n    import aiohttp_cors\nModuleNotFoundError: No module named 'aiohttp_cors'\n"
	const limit = "OpenBLAS: pthread_create failed for thread 61 of 64: Resource temporarily unavailable\n"
	for text, want := range map[string]Category{
		before + burst:         Infrastructure,
		before + burst + after: Infrastructure,
		before + burst + after + "[a-3] task 43 done in 8.00 s, size 4096\n":         None,
		before + burst + after + burst + "[a-3] task 43 done in 8.00 s, size 4096\n": Infrastructure,
		limit:   UserScript,
		missing: UserScript,
		missing + "fold 1: auc 0.81\nfold 2: auc 0.80\nfold 3: auc 0.82\nfold 4: auc 0.82\n": None,
		warned: Framework,
		warned + "frame 100: fps 41\nframe 200: fps 41\n":                                                      Framework,
		warned + "frame 100: fps 41\nframe 200: fps 41\nframe 300: fps 41\n":                                   None,
		limit + "fold 1: auc 0.81\nfold 2: auc 0.80\n":                                                         UserScript,
		limit + "fold 1: auc 0.81\nfold 2: auc 0.80\nfold 3: auc 0.82\n":                                       None,
		limit + "waiting 1\nwaiting 2\nwaiting 3\nwaiting 4\nwaiting 5\n":                                      UserScript,
		"step 1 loss 2\n" + limit + "fold 1: auc 0.81\nfold 2: auc 0.80\nfold 3: auc 0.82\nfold 4: auc 0.82\n": UserScript,
	} {
		if v := diagnosed(t, text); v.Category != want {
			t.Errorf("%q: %s (%s), want %s", text, v.Category, v.Signature, want)
		}
	}
}

// Of errors that differ in their numbers only, the first one is the root: that they come again does not say that the job goes on.
func TestSameErrorAgain(t *testing.T) {
	var text strings.Builder
	text.WriteString("step 1 loss 2\n")
	for _, n := range []string{"4", "9", "2", "8", "1", "7"} {
		text.WriteString("[job] request " + n + " to storage: Connection reset by peer\n")
	}
	if v := diagnosed(t, text.String()); v.SignatureLine == nil || *v.SignatureLine != 1 {
		t.Errorf("%+v, want line 1", v)
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
		before + failed + rollouts: Infrastructure,
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

// A part of a list that counts 0 says that nothing of its kind happened; the other parts count, and a number that is a name.
func TestWithoutZeros(t *testing.T) {
	for line, want := range map[string]Category{
		"gpu check: retired pages 0, ecc errors 0":             None,
		"gpu check: retired pages pending 4, ecc errors 0":     Infrastructure,
		"ib0 error counters: symbol 0, link downed 0":          None,
		"ib0 error counters: symbol 0, link is down":           Infrastructure,
		"ib0: link downed=0":                                   None,
		"mlx5_0: link is down on port 0":                       Infrastructure,
		"gpu 0: uncorrectable ECC errors: 0":                   None,
		"mlx5_0: link down on port 0, symbol errors on port 0": Infrastructure,
		"nvme0n1: I/O error at sector 0":                       Infrastructure,
		"pip: WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by ProxyError('Cannot connect to proxy.')": Infrastructure,
		"NVRM: Xid (PCI:0000:3b:00): 48, pid=0":                             Infrastructure,
		"all of it: 8 of 8 clients lost, Connection reset by peer":          Infrastructure,
		"Connection reset by peer\n8 of 8 answered":                         None,
		"Connection reset by peer\n7 of 8 answered":                         Infrastructure,
		"Connection reset by peer\n8 of 8 clients lost":                     Infrastructure,
		"mlx5_1: out_of_sequence +81104, packet loss on port 1":             Infrastructure,
		"{\"level\":\"warn\",\"msg\":\"Stale file handle\"}\nstep 2 loss 2": None,
	} {
		if v := diagnosed(t, "step 1 loss 2\n"+line); v.Category != want {
			t.Errorf("%q: %s (%s), want %s", line, v.Category, v.Signature, want)
		}
	}
}
