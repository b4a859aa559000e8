//go:build linux

package driver

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/muster-sched/muster/gpu/gputest"
)

func TestMain(m *testing.M) { gputest.Main(m) }

// start starts the program on two fake GPUs.
func start(tb testing.TB) *Process {
	tb.Helper()
	o := Options{Host: 1 << 20}
	o.Program, o.Driver, o.Environment = gputest.NewNode(tb, 64).Worker(tb, 2)
	ctx, stop := context.WithTimeout(tb.Context(), time.Minute)
	defer stop()
	p, err := Start(ctx, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	for device := range 2 {
		g, err := p.Use(device)
		if err != nil || g.Number != device || g.Urgent != -5 || g.Background != 0 || !strings.HasPrefix(g.Name, "fake GPU") {
			tb.Fatalf("%+v, %v", g, err)
		}
	}
	if err := p.ShareHost(); err != nil {
		tb.Fatal(err)
	}
	return p
}

const add = `.version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 x, .param .u32 n)
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [x];
	ld.param.u32 %r1, [n];
	mov.u32 %r2, %tid.x;
	mad.wide.u32 %rd2, %r2, 4, %rd1;
	ld.global.u32 %r3, [%rd2];
	add.u32 %r3, %r3, %r1;
	st.global.u32 [%rd2], %r3;
	ret;
}
`

// Bytes go from the host to a GPU, through a kernel, to another GPU and back: streams wait for events and flags.
func TestStreams(t *testing.T) {
	p := start(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a, err := p.Alloc(0, 64)
	must(err)
	b, err := p.Alloc(1, 64)
	must(err)
	m, err := p.Load(0, add)
	must(err)
	f, err := p.Function(m, "add")
	must(err)
	first, second := p.Stream(0, -5), p.Stream(1, 0)
	began, ended := p.Event(0, true), p.Event(0, true)
	for i := range 16 {
		binary.LittleEndian.PutUint32(p.Host[64+4*i:], uint32(i))
	}
	p.Do("await %d 0 7", first)
	p.Do("put %d %d 64 64", first, a)
	p.Do("record %d %d", began, first)
	args := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, a), 100)
	p.Launch(f, first, [3]int{1, 1, 1}, [3]int{15, 1, 1}, 0, args)
	p.Do("record %d %d", ended, first)
	p.Do("wait %d %d", second, ended)
	p.Do("peer %d 1 %d 0 %d 60", second, b, a)
	p.Do("fill %d %d 255 4", second, b+60)
	p.Do("get %d 256 %d 64", second, b)
	done := make(chan struct{})
	p.Notify(second, func() { close(done) })
	p.Flush()
	select {
	case <-done:
		t.Fatal("a stream went on before the flag was set")
	case <-time.After(20 * time.Millisecond):
	}
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&p.Host[0])), 7)
	<-done
	want := make([]byte, 0, 64)
	for i := range 15 {
		want = binary.LittleEndian.AppendUint32(want, uint32(100+i))
	}
	want = append(want, 255, 255, 255, 255)
	if !bytes.Equal(p.Host[256:320], want) {
		t.Errorf("%v, want %v", p.Host[256:320], want)
	}
	if us, err := p.Elapsed(began, ended); err != nil || us <= 0 {
		t.Errorf("%g us, %v", us, err)
	}
	must(p.Sync())
}

// A graph runs when it is launched, each time, on any stream of its GPU; what makes it does not.
func TestGraph(t *testing.T) {
	p := start(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	at, err := p.Alloc(0, 64)
	must(err)
	m, err := p.Load(0, add)
	must(err)
	f, err := p.Function(m, "add")
	must(err)
	before, err := p.Spent()
	must(err)
	first, second, other := p.Stream(0, -5), p.Stream(0, 0), p.Stream(1, 0)
	p.Do("fill %d %d 0 64", first, at)
	must(p.Sync())
	args := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, at), 100)
	one := func(n uint32) string {
		binary.LittleEndian.PutUint32(args[8:], n)
		return Launch(f, first, [3]int{1, 1, 1}, [3]int{16, 1, 1}, 0, args)
	}
	g := p.Graph(first, []string{one(1), one(10)})
	back := p.Graph(first, []string{fmt.Sprintf("get %d 64 %d 64", first, at)})
	if p.Replay(g, first); g != 0 || back != 1 {
		t.Errorf("graphs %d and %d", g, back)
	}
	must(p.Sync())
	p.Replay(g, second)
	p.Replay(back, second)
	must(p.Sync())
	if got := binary.LittleEndian.Uint32(p.Host[64+60:]); got != 22 {
		t.Errorf("two launches of a graph that adds 11 give %d", got)
	}
	if after, err := p.Spent(); err != nil || after <= before {
		t.Errorf("CPU time %s, then %s: %v", before, after, err)
	}
	p.Replay(g, other)
	if err := p.Sync(); err == nil || !strings.HasSuffix(err.Error(), "replay 0 2") {
		t.Errorf("a graph on a stream of another GPU: %v", err)
	}
}

// Parts of a device are GPUs; the first is as large as asked for, or a little larger.
func TestSplit(t *testing.T) {
	p := start(t)
	parts, has, err := p.Split(0, 9)
	if err != nil || has != [2]int{10, 6} || parts[0].Number != 2 || parts[1].Number != 3 {
		t.Fatalf("%+v, %v, %v", parts, has, err)
	}
	if at, err := p.Alloc(parts[1].Number, 1<<20); err != nil || at == 0 {
		t.Errorf("%#x, %v", at, err)
	}
}

// A call that fails ends the program, and is what all that follow return.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(p *Process) error
		want string
	}{
		{"memory", func(p *Process) error { _, err := p.Alloc(0, 1<<40); return err }, "the driver's cuMemAlloc_v2 returned CUDA_ERROR_OUT_OF_MEMORY: alloc 0 1099511627776"},
		{"text", func(p *Process) error { _, err := p.Load(0, ".entry k() {"); return err }, "the driver's cuModuleLoadDataEx returned CUDA_ERROR_INVALID_PTX: no "},
		{"command", func(p *Process) error { p.Do("put 99 0 0 0"); return p.Sync() }, "the driver's command returned CUDA_ERROR_UNKNOWN: put 99 0 0 0"},
		{"bytes", func(p *Process) error { p.Do("get %d 0 0 99999999", p.Stream(0, 0)); return p.Sync() }, "the driver's command returned CUDA_ERROR_UNKNOWN: get 0 0 0 99999999"},
		{"killed", func(p *Process) error { syscall.Kill(p.PID, syscall.SIGKILL); <-p.Ended(); return p.Sync() }, ErrEnded.Error()},
	} {
		p := start(t)
		err := c.do(p)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
			continue
		}
		<-p.Ended()
		if again := p.Sync(); !errors.Is(again, err) {
			t.Errorf("%s: then %v", c.name, again)
		}
	}
	if _, err := Start(t.Context(), Options{Program: "none"}); err == nil || !strings.Contains(err.Error(), "make gpu builds") {
		t.Errorf("without the program: %v", err)
	}
}

// The program ends with the one that wrote its commands, also if that was killed while a call of the driver hangs.
func TestAbandoned(t *testing.T) {
	p := start(t)
	p.Do("await %d 0 7", p.Stream(0, 0))
	p.Do("sync")
	p.Flush()
	p.in.Close()
	select {
	case <-p.Ended():
	case <-time.After(30 * time.Second):
		t.Error("the program still runs")
	}
}

// BenchmarkCommands is the time of a command: written, read, and carried out by a call of the fake driver that does almost
// nothing.
func BenchmarkCommands(b *testing.B) {
	p := start(b)
	s, e := p.Stream(0, 0), p.Event(0, false)
	b.ResetTimer()
	for range b.N {
		p.Do("record %d %d", e, s)
	}
	if err := p.Sync(); err != nil {
		b.Fatal(err)
	}
}
