package diagnose

import "testing"

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
