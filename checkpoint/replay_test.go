//go:build linux

package checkpoint_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/gpu"
	"github.com/muster-sched/muster/gpu/gputest"
)

// contextMiB is what a context takes of the GPUs of these tests.
const contextMiB = 8

func replayNode(t testing.TB, mib int) *gputest.Node {
	n := gputest.NewNode(t, mib)
	n.Set("MUSTER_FAKE_GPU_CONTEXT_MIB", strconv.Itoa(contextMiB))
	return n
}

func replay(t testing.TB, n *gputest.Node) *checkpoint.Replay {
	b := &checkpoint.Replay{Shim: &checkpoint.Shim{Dir: n.Dir, Lease: time.Minute}}
	t.Cleanup(b.Close)
	return b
}

func release(t testing.TB, b *checkpoint.Replay, pid int) {
	t.Helper()
	if err := checkpoint.Pause(ctx, b, []int{pid}, patient); err != nil {
		t.Fatal(err)
	}
	if phase, err := b.Phase(pid); phase != checkpoint.Released || err != nil {
		t.Fatalf("process %d is %s after a pause, %v", pid, phase, err)
	}
}

// undisturbed is the sum with which a program ends that is not paused.
func undisturbed(t testing.TB, n *gputest.Node, work string) string {
	t.Helper()
	p := n.StartPlain(t)
	defer p.Kill()
	p.Do("alloc %d", 2*mib)
	p.Send("%s", work)
	return p.Until("sum ")
}

// A program with streams that wait for each other by events, modules with variables, kernels with attributes, callbacks and
// registered memory ends with the same bits, however often all of it was destroyed and made again, and the list of
// what is live stays short.
func TestReplayedProgramEndsTheSame(t *testing.T) {
	n := replayNode(t, 64)
	const work = "objects 0 65536 400"
	want := undisturbed(t, n, work)
	p, other := n.Start(t), n.StartPlain(t)
	p.Kill() // it has given its part back
	empty := other.Do("left")
	p = n.Start(t)
	p.Do("alloc %d", 2*mib)
	p.Send("%s", work)
	for step := 10; step <= 400; step += 30 {
		p.Until(fmt.Sprintf("step %d", step))
		b := replay(t, n)
		release(t, b, p.PID)
		if got := other.Do("left"); got != empty {
			t.Errorf("released at step %d: %s; of a GPU without it: %s", step, got, empty)
		}
		// The program's are 1 stream, 1 module and 2 functions; of the work, 2 modules with a function each, 3 streams, 5 events, and 2 in between.
		if st, err := b.Status(p.PID); err != nil || st.Objects < 4 || st.Objects > 18 {
			t.Errorf("at step %d, %d objects are live, %v", step, st.Objects, err)
		}
		resume(t, b, p.PID)
		b.Close()
	}
	if got := p.Until("sum "); got != want {
		t.Errorf("the program ended with %s after replays, and with %s without", got, want)
	}
	b := replay(t, n)
	if st, err := b.Status(p.PID); err != nil || st.Objects != 4 {
		t.Errorf("at the end, %d objects are live, %v", st.Objects, err)
	}
}

// A handle of cuBLAS is host memory and calls of the driver: it needs nothing of its own.
func TestReplayedLibraryHandle(t *testing.T) {
	n := replayNode(t, 64)
	work := "blas 0 " + n.Library() + " 200"
	want := undisturbed(t, n, work)
	p := n.Start(t)
	p.Do("alloc %d", 2*mib)
	p.Send("%s", work)
	for _, step := range []string{"10", "70", "150"} {
		p.Until("step " + step)
		b := replay(t, n)
		release(t, b, p.PID)
		resume(t, b, p.PID)
		b.Close()
	}
	if got := p.Until("sum "); got != want || len(got) != 16 {
		t.Errorf("the program ended with %s after replays, and with %s without", got, want)
	}
}

// Threads that allocate, compute and free all the time, each with a stream of its own, find what they left.
func TestReplayedAtAnyMoment(t *testing.T) {
	n := replayNode(t, 256)
	p := n.Start(t)
	p.Send("stress 4 60")
	ended := make(chan string)
	go func() { ended <- p.Line() }()
	releases := 0
	for end := ""; end == ""; releases++ {
		b := replay(t, n)
		release(t, b, p.PID)
		resume(t, b, p.PID)
		b.Close()
		select {
		case end = <-ended:
			if end != "stressed" {
				t.Error(end)
			}
		default:
		}
	}
	if releases < 5 {
		t.Errorf("%d releases: does this test still test something?", releases)
	}
}

// What a replay would miss is refused with the reason, before anything is lost; what is gone again is no reason.
func TestReplayRefuses(t *testing.T) {
	n := replayNode(t, 64)
	for _, c := range []struct{ has, again, want string }{
		{"graph", "", "it has called cuStreamBeginCapture_v2"},
		{"table", "", "it uses the CUDA runtime"},
		{"later", "", "it has called cuOfALaterDriver"},
		{"own", "", "it has 1 allocations that the library did not make"},
		{"pinned", "unpinned", "it has 1 buffers of cuMemHostAlloc"},
		{"shared", "unshared", "it has an event that other processes may wait for"},
		{"address", "unloaded", "it has asked for the address of the variable counter"},
		{"pointer", "unloaded", "a kernel uses the address of counter as a value"},
	} {
		p, b := n.Start(t), replay(t, n)
		p.Do("alloc %d", mib)
		sum := p.Do("sum 0 %d", mib)
		p.Do("has %s", c.has)
		err := checkpoint.Pause(ctx, b, []int{p.PID}, patient)
		if !errors.Is(err, gpu.ErrRefused) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "all processes go on") {
			t.Errorf("%s: %v", c.has, err)
		}
		if got := p.Do("sum 0 %d", mib); got != sum {
			t.Errorf("%s: %s before, %s after", c.has, sum, got)
		}
		if st, err := b.Status(p.PID); st.Phase != checkpoint.Running || st.Active != 0 || err != nil {
			t.Errorf("%s: %+v, %v: expected that nothing was copied", c.has, st, err)
		}
		if c.again != "" {
			if got := p.Do("has %s", c.again); got != "has 0" {
				t.Errorf("%s: %s", c.again, got)
			}
			release(t, b, p.PID)
			resume(t, b, p.PID)
		}
		p.Kill()
		b.Close()
	}
}

// After a replay, calls that a replay knows go on, if only to be a reason against the next one; one about which nothing
// is known fails, as its handles might be old ones.
func TestCallsAfterReplay(t *testing.T) {
	n := replayNode(t, 64)
	b := replay(t, n)
	p := n.Start(t)
	p.Do("alloc %d", mib)
	release(t, b, p.PID)
	resume(t, b, p.PID)
	for what, want := range map[string]string{"later": "has 801", "table": "has 801", "graph": "has 0", "shared": "has 0"} {
		if got := p.Do("has %s", what); got != want {
			t.Errorf("%s: %s, expected %s", what, got, want)
		}
	}
	if err := checkpoint.Pause(ctx, b, []int{p.PID}, patient); !errors.Is(err, gpu.ErrRefused) {
		t.Errorf("%v", err)
	}
	p.Send("train 0 %d 20", mib)
	p.Until("sum ")
}

// Where the GPU has no room for the contexts, or later for the memory, the process stays as it is, and comes back when there is room.
func TestReplayWithoutRoom(t *testing.T) {
	n := replayNode(t, 64)
	for _, room := range []int{contextMiB - 2, contextMiB, contextMiB + 10} { // for no context; for no variable; for no memory
		b := replay(t, n)
		p, guest := n.Start(t), n.StartPlain(t)
		p.Do("alloc %d", 16*mib)
		sum := p.Do("sum 0 %d", 16*mib)
		p.Do("has variable") // which takes 2 MiB of this driver
		release(t, b, p.PID)
		if got := guest.Do("alloc %d", (64-contextMiB-room)*mib); !strings.HasPrefix(got, "alloc") {
			t.Fatal(got)
		}
		for range 2 {
			if err := checkpoint.Resume(ctx, b, []int{p.PID}, time.Minute); !errors.Is(err, gpu.ErrNoMemory) {
				t.Errorf("with %d MiB: %v", room, err)
			}
			if phase, err := b.Phase(p.PID); phase != checkpoint.Released || err != nil {
				t.Errorf("with %d MiB the process is %s, %v", room, phase, err)
			}
			if got, want := guest.Do("left"), fmt.Sprintf("left %d", room*mib); got != want {
				t.Errorf("after a resume that failed: %s, before %s", got, want)
			}
		}
		guest.Kill()
		resume(t, b, p.PID)
		if got := p.Do("sum 0 %d", 16*mib); got != sum {
			t.Errorf("%s before, %s after", sum, got)
		}
		p.Kill()
		b.Close()
	}
}

// Whatever the phase in which the command dies, the process goes on by itself, and the next command goes on from there.
func TestCommandDiesInAReplay(t *testing.T) {
	n := replayNode(t, 64)
	for _, resumes := range []bool{false, true} {
		path := replay(t, n).Path()
		for i := range path {
			p := n.Start(t)
			p.Do("alloc %d", mib)
			sum := p.Do("sum 0 %d", mib)
			b := &checkpoint.Replay{Shim: &checkpoint.Shim{Dir: n.Dir, Lease: time.Minute}}
			steps := path[1 : i+1]
			if resumes {
				release(t, b, p.PID)
				steps = nil
				for k := len(path) - 2; k >= i; k-- {
					steps = append(steps, path[k])
				}
			}
			for _, to := range steps {
				if err := b.Step(ctx, p.PID, to); err != nil {
					t.Fatal(err)
				}
			}
			b.Close() // as its death does
			next := replay(t, n)
			release(t, next, p.PID)
			resume(t, next, p.PID)
			next.Close()
			if got := p.Do("sum 0 %d", mib); got != sum {
				t.Errorf("%v to %s: %s before, %s after", resumes, path[i], sum, got)
			}
			// And without a next one.
			short := &checkpoint.Replay{Shim: &checkpoint.Shim{Dir: n.Dir, Lease: time.Millisecond}}
			for _, to := range path[1 : i+1] {
				if err := short.Step(ctx, p.PID, to); err != nil {
					if phase, _ := short.Phase(p.PID); phase == checkpoint.Running || errors.Is(err, gpu.ErrCancelled) {
						break // the lease ran out
					}
					t.Fatal(err)
				}
			}
			short.Close()
			if got := p.Do("sum 0 %d", mib); got != sum { // it waits at the gate until the lease runs out
				t.Errorf("to %s: %s before, %s after", path[i], sum, got)
			}
			p.Kill()
		}
	}
}

// auto never chooses a replay, and continues a process that was released, as the shim does.
func TestAutoResumesReleased(t *testing.T) {
	n := replayNode(t, 64)
	p := n.Start(t)
	p.Do("alloc %d", mib)
	choose := func(name string) checkpoint.Local {
		program, driver, environment := n.Caller()
		b, err := checkpoint.Choose(name, n.Dir, time.Minute, &gpu.Calls{Program: program, Driver: driver, Dir: n.Dir, Environment: environment}, []int{p.PID})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, want := range map[string]checkpoint.Phase{"auto": checkpoint.Saved, "replay": checkpoint.Released} {
		b := choose(name)
		if err := checkpoint.Pause(ctx, b, []int{p.PID}, patient); err != nil {
			t.Fatal(err)
		}
		if phase, err := b.Phase(p.PID); phase != want || err != nil {
			t.Errorf("%s: %s, %v", name, phase, err)
		}
		b.Close()
		b = choose("auto")
		if _, ok := b.(*checkpoint.Replay); ok != (want == checkpoint.Released) {
			t.Errorf("a process that is %s is resumed by %T", want, b)
		}
		resume(t, b, p.PID)
		b.Close()
	}
	sum := p.Do("sum 0 %d", mib)
	b := replay(t, n)
	release(t, b, p.PID)
	b.Close()
	resume(t, backend(t, n), p.PID)
	if got := p.Do("sum 0 %d", mib); got != sum {
		t.Errorf("%s before, %s after", sum, got)
	}
}

// What the text of a module says decides whether it can be loaded again elsewhere. This driver has the variable "counter" only: that
// it does not show another one says that the text was understood.
func TestModulesThatAreRefused(t *testing.T) {
	n := replayNode(t, 64)
	p := n.Start(t)
	const kernel = ".visible .entry k(.param .u64 .ptr .global .align 8 state) // {\n{\n.reg .b64 %d<3>; .reg .pred %p<2>;\n"
	for _, c := range []struct{ name, text, want string }{
		{"no variable", kernel + "ret;\n}\n", ""},
		{"a variable that is loaded and stored", ".visible .global .u64 counter;\n" + kernel + "ld.global.u64 %d1, [counter];\nst.global.u64 [counter+0], %d1;\nret;\n}\n", ""},
		{"its name in a comment", ".visible .global .u64 counter; /* = counter */\n" + kernel + "mov.u64 %d1, %d2; // counter\nret;\n}\n", ""},
		{"its name in a longer one", ".visible .global .u64 counter;\n" + kernel + "mov.u64 %d1, counter2;\nret;\n}\n", ""},
		{"its address as a value", ".visible .global .u64 counter;\n" + kernel + "@%p1 mov.u64 %d1, counter;\nret;\n}\n", "a kernel uses the address of counter as a value"},
		{"behind a block", ".visible .global .u64 counter;\n" + kernel + "{ .reg .b64 %d9; }\nmov.u64 %d1, counter+8;\nret;\n}\n", "the address of counter as a value"},
		{"in a second kernel", ".visible .global .u64 counter;\n" + kernel + "ret;\n}\n.entry other()\n{\nadd.s64 %d1, counter, 1;\nret;\n}\n", "the address of counter as a value"},
		{"a list of numbers", ".global .align 4 .b8 table[4] = {1, 2, 3, 4};\n" + kernel + "ld.global.u8 %d1, [table+2];\nret;\n}\n", "does not show the variable table"},
		{"a constant", ".const .align 4 .f32 factor = 0f3F800000;\n" + kernel + "ret;\n}\n", "does not show the variable factor"},
		{"an address in a variable", ".global .u64 a;\n.global .u64 b = a;\n" + kernel + "ret;\n}\n", "a variable of a module holds the address of a"},
		{"a variable elsewhere", ".extern .global .u64 a;\n" + kernel + "ret;\n}\n", "a module uses a, which is not in it"},
		{"malloc", ".extern .func (.param .b64 r) malloc (.param .b64 size);\n" + kernel + "ret;\n}\n", "a module uses malloc, which is not in it"},
		{"printf", ".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);\n" + kernel + "ret;\n}\n", ""},
		{"a call", ".func f() {\nret;\n}\n" + kernel + "call.uni f, ();\ncall f;\nret;\n}\n", ""},
		{"the address of a function", ".func f() {\nret;\n}\n" + kernel + "mov.u64 %d1, f;\nret;\n}\n", "a kernel uses the address of f as a value"},
		{"managed memory", ".global .attribute(.managed) .u64 a;\n" + kernel + "ret;\n}\n", "a module has managed memory"},
		{"a texture", ".global .texref t;\n" + kernel + "ret;\n}\n", "a module has textures or surfaces"},
		{"variables in a function", kernel + ".global .u64 a;\nret;\n}\n", "a function of a module has variables of its own"},
		{"shared memory of a kernel", ".extern .shared .align 16 .b8 all[];\n" + kernel + ".extern .shared .align 16 .b8 memory[];\nret;\n}\n.entry other()\n{\nret;\n}\n", ""},
		{"several at once", ".global .u64 a, b;\n" + kernel + "ret;\n}\n", "several variables at once"},
		{"another name", ".func f() {\nret;\n}\n.alias g, f;\n" + kernel + "ret;\n}\n", "functions with two names"},
		{"machine code", "\x7fELF" + strings.Repeat("\x00", 36) + "\x40", "a module is machine code"},
		{"a fat binary", "\x50\xed\x55\xba\x01\x00\x10\x00\x08", "a module is a fat binary"},
		{"something else", "BC\xc0\xde", "an image of an unknown kind"},
	} {
		text := c.text
		if text[0] == '.' {
			text = ".version 7.0\n.target sm_70\n.address_size 64\n.file 1 \"a { b.cu\"\n" + text
		} else {
			text += strings.Repeat("\x00", 100)
		}
		path := filepath.Join(t.TempDir(), "module")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := p.Do("module %s", path); got != "module 0" {
			t.Errorf("%s: %s", c.name, got)
		}
		b := replay(t, n)
		err := checkpoint.Pause(ctx, b, []int{p.PID}, patient)
		switch {
		case c.want != "" && (!errors.Is(err, gpu.ErrRefused) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v", c.name, err)
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case err == nil:
			resume(t, b, p.PID)
		}
		b.Close()
		if got := p.Do("has unloaded"); got != "has 0" {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}
