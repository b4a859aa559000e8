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
