package diagnose

import "testing"

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

// The lines of a comparison are text that a program shows; those behind it are the job's.
func TestDiff(t *testing.T) {
	const head = "--- a/q.py\n+++ b/q.py\n@@ -1,2 +1,2 @@\n"
	for text, want := range map[string]Category{
		head + "-print(\"Segmentation fault\")\n+print(\"segfault\")\n": None,
		head + "+x = 1\nSegmentation fault (core dumped)\n":             Framework,
		"+++ killed by SIGKILL +++\n-Segmentation fault\n":              Framework,
		"-Segmentation fault\n":                                         Framework,
		"--- Logging error ---\n-Segmentation fault\n":                  Framework,
	} {
		if v := diagnosed(t, text); v.Category != want {
			t.Errorf("%q: %s (%s), want %s", text, v.Category, v.Signature, want)
		}
	}
}
