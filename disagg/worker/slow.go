package worker

import "encoding/binary"

// slow makes a link slower than it is: a kernel of one thread, after the copy, holds the link for the rest of the time that
// the transfer would take. Transfers of all requests take turns, in the order in which their copies end.
type slow struct {
	kernel int
	state  uint64 // the next ticket, and the ticket whose turn it is
}

const slowText = `.version 7.0
.target sm_70
.address_size 64
.visible .entry hold(.param .u64 state, .param .u64 ns)
{
	.reg .pred %p;
	.reg .b32 %r<4>;
	.reg .b64 %rd<8>;
	ld.param.u64 %rd1, [state];
	ld.param.u64 %rd2, [ns];
	atom.global.add.u32 %r1, [%rd1], 1;
TURN:
	ld.volatile.global.u32 %r2, [%rd1+4];
	setp.ne.u32 %p, %r1, %r2;
	@%p bra TURN;
	mov.u64 %rd3, %globaltimer;
HELD:
	mov.u64 %rd4, %globaltimer;
	sub.u64 %rd5, %rd4, %rd3;
	setp.lt.u64 %p, %rd5, %rd2;
	@%p bra HELD;
	add.u32 %r3, %r1, 1;
	st.volatile.global.u32 [%rd1+4], %r3;
	ret;
}
`

// newSlow makes a link from a GPU slow.
func newSlow(x *site, from int) (*slow, error) {
	g := x.gpus[from].Number
	m, err := x.process.Load(g, slowText)
	if err != nil {
		return nil, err
	}
	l := &slow{}
	if l.kernel, err = x.process.Function(m, "hold"); err != nil {
		return nil, err
	}
	if l.state, err = x.process.Alloc(g, 8); err != nil {
		return nil, err
	}
	s := x.streamOf(placed{stream{from, from}, 0, 0})
	x.process.Do("fill %d %d 0 8", s, l.state)
	return l, x.process.Sync()
}

func (l *slow) post(x *site, bytes int64, s int) {
	ns := uint64(1e9 * (x.Slow.Latency + float64(bytes)/x.Slow.BytesPerSecond))
	args := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, l.state), ns)
	x.process.Launch(l.kernel, s, [3]int{1, 1, 1}, [3]int{1, 1, 1}, 0, args)
}
