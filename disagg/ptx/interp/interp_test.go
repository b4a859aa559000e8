package interp_test

import (
	"testing"

	"github.com/muster-sched/muster/disagg/ptx"
	"github.com/muster-sched/muster/disagg/ptx/interp"
	"github.com/muster-sched/muster/disagg/ptx/ptxtest"
)

// Kernels of many shapes compute what the same in Go computes.
func TestKernels(t *testing.T) {
	for _, c := range ptxtest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			m, err := c.Module("../testdata")
			if err != nil {
				t.Fatal(err)
			}
			memory, err := c.Memory()
			if err != nil {
				t.Fatal(err)
			}
			p, err := interp.Load(m, memory)
			if err != nil {
				t.Fatal(err)
			}
			count, err := p.Run(c.Launch, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Check(memory); err != nil {
				t.Fatal(err)
			}
			if want := int64(2 * 32 * 32 * 32); c.Name == "gemm" && count.Vector != want {
				t.Errorf("%d operations, want %d", count.Vector, want)
			}
			if want := int64(2 * 16 * 8 * 48); c.Name == "mma" && count.Tensor != want {
				t.Errorf("%d operations of tensor cores, want %d", count.Tensor, want)
			}
		})
	}
}

// What cannot be carried out is a fault that says where.
func TestFaults(t *testing.T) {
	for body, want := range map[string]string{
		"ld.global.u32 %r1, [x];\nmov.u64 %rd1, x;\nld.global.u32 %r1, [%rd1+6];":                     "k, line 7: thread [0 0 0] of block [0 0 0]: ld.global.u32 accesses 4 bytes at 0x1000006, which is not aligned",
		"mov.u64 %rd1, 4096;\nst.global.u32 [%rd1], 1;":                                               "k, line 6: thread [0 0 0] of block [0 0 0]: st.global.u32 accesses 4 bytes at 0x1000, which are in no buffer",
		"mov.u64 %rd1, x;\nst.global.v4.u32 [%rd1+16], {1, 1, 1, 1};":                                 "k, line 6: thread [0 0 0] of block [0 0 0]: st.global.v4.u32 accesses 16 bytes at 0x10 of global memory, which ends at 0x18",
		"mov.u32 %r1, %tid.x;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bar.sync 0, 64;":                        "k, line 7: thread [0 0 0] of block [0 0 0]: bar.sync waits for threads that do not come",
		"mov.u32 %r1, %tid.x;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bar.sync 0, 64;\n@!%p1 bar.sync 1, 64;": "k, line 7: thread [0 0 0] of block [0 0 0]: bar.sync waits for threads that do not come",
		"HERE: bra HERE;":             "k, line 5: thread [20 0 0] of block [0 0 0]: bra ran when the limit of 1000000 instructions was reached",
		"trap;":                       "k, line 5: thread [0 0 0] of block [0 0 0]: trap stops the kernel",
		"frob.b32 %r1, %r2;":          "k, line 5: thread [0 0 0] of block [0 0 0]: frob.b32 is an instruction that cannot run here",
		"add.u32 %r1, %r1, %nothing;": "k, line 5: expected a value; found %nothing",
		"bra NOWHERE;":                "k, line 5: expected a label; found NOWHERE",
		"mov.u32 %r1, 0; ld.shared.u32 %r1, [%r1+64];": "k, line 5: thread [0 0 0] of block [0 0 0]: ld.shared.u32 accesses 4 bytes at 0x40 of shared memory, which ends at 0x0",
	} {
		m, err := ptx.Parse(".version 8.0\n.target sm_90\n.global .align 8 .b8 x[24];\n.visible .entry k() { .reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p<4>;\n" + body + "\nret;\n}\n")
		if err != nil {
			t.Fatal(err)
		}
		p, err := interp.Load(m, &interp.Memory{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Run(interp.Launch{Kernel: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}, Steps: 1e6}, nil)
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", body, err, want)
		}
	}
}

func BenchmarkRun(b *testing.B) {
	for _, c := range ptxtest.Cases() {
		if c.Name != "gemm" {
			continue
		}
		m, err := c.Module("../testdata")
		if err != nil {
			b.Fatal(err)
		}
		memory, err := c.Memory()
		if err != nil {
			b.Fatal(err)
		}
		p, err := interp.Load(m, memory)
		if err != nil {
			b.Fatal(err)
		}
		var steps int64
		for b.Loop() {
			n, err := p.Run(c.Launch, nil)
			if err != nil {
				b.Fatal(err)
			}
			steps += n.Steps
		}
		b.ReportMetric(float64(steps)/b.Elapsed().Seconds()/1e6, "Minstr/s")
	}
}
