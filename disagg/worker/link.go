package worker

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// link carries bytes from one GPU to another.
type link interface {
	// post submits what there is to do for a transfer on a stream of this site.
	post(o *Op, q *Post, s int)
	close()
}

// peer is a link between two GPUs of a site: copies, which the driver makes without the host where it can.
type peer struct {
	x    *site
	slow *slow // nil: it is as fast as it is
}

func (l peer) post(o *Op, q *Post, s int) {
	for _, r := range o.Bytes {
		l.x.process.Do("%s", l.x.within(q.Slot, o.GPU, s, r, q.Slot, o.From, r.From))
	}
	if l.slow != nil {
		l.slow.post(l.x, o.size(), s)
	}
}

func (peer) close() {}

// incoming is the receiving end of a link over the network: the stream waits for the flag that the connection's reader
// sets when the bytes are in the host's memory.
type incoming struct{ x *site }

func (l incoming) post(o *Op, q *Post, s int) {
	l.x.process.Do("await %d %d %d", s, l.x.flag(q.Slot, o.Flag), q.Count)
	at := l.x.host(q.Slot) + o.Host
	for _, r := range o.Bytes {
		l.x.process.Do("put %d %d %d %d", s, l.x.address(o.GPU, q.Slot, r.From), at, r.To-r.From)
		at += int64(r.To - r.From)
	}
}

func (incoming) close() {}

// outgoing is the sending end: when the stream has brought the bytes to the host's memory, they go to the connection.
type outgoing struct {
	x    *site
	to   int // site
	conn net.Conn

	mu      sync.Mutex
	changed *sync.Cond
	waiting []frame
	closed  bool
}

// frame is the head of a transfer over a connection, before its bytes.
type frame struct {
	Slot, Flag, Count uint32
	Host, Bytes       int64
}

func newOutgoing(x *site, to int, conn net.Conn) *outgoing {
	l := &outgoing{x: x, to: to, conn: conn}
	l.changed = sync.NewCond(&l.mu)
	go l.write()
	return l
}

func (l *outgoing) post(o *Op, q *Post, s int) {
	from := l.x.host(q.Slot) + o.Host
	at := from
	for _, r := range o.Bytes {
		l.x.process.Do("get %d %d %d %d", s, at, l.x.address(o.From, q.Slot, r.From), r.To-r.From)
		at += int64(r.To - r.From)
	}
	f := frame{uint32(q.Slot), uint32(o.Flag), q.Count, o.Host, at - from}
	l.x.process.Notify(s, func() {
		l.mu.Lock()
		l.waiting = append(l.waiting, f)
		l.mu.Unlock()
		l.changed.Signal()
	})
}

func (l *outgoing) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.changed.Signal()
	l.conn.Close()
}

func (l *outgoing) write() {
	for {
		l.mu.Lock()
		for len(l.waiting) == 0 && !l.closed {
			l.changed.Wait()
		}
		all, closed := l.waiting, l.closed
		l.waiting = nil
		l.mu.Unlock()
		if closed {
			return
		}
		for _, f := range all {
			head, _ := binary.Append(nil, binary.LittleEndian, f)
			from := l.x.host(int(f.Slot)) + f.Host
			bytes := net.Buffers{head, l.x.process.Host[from : from+f.Bytes]}
			if _, err := bytes.WriteTo(l.conn); err != nil {
				l.x.fail(fmt.Errorf("sending to site %d: %w", l.to, err))
				return
			}
		}
	}
}

// receive reads transfers from a site until the connection ends.
func (x *site) receive(from int, conn io.Reader) {
	in := bufio.NewReaderSize(conn, 64<<10)
	for {
		var f frame
		err := binary.Read(in, binary.LittleEndian, &f)
		if err == nil && (f.Slot >= uint32(x.Slots) || f.Flag >= uint32(x.Flags) || f.Host < 0 || f.Bytes < 0 || f.Host > x.Host || f.Bytes > x.Host-f.Host) {
			err = fmt.Errorf("expected a transfer of this run; found %+v", f)
		}
		if err == nil {
			at := x.host(int(f.Slot)) + f.Host
			_, err = io.ReadFull(in, x.process.Host[at:at+f.Bytes])
		}
		if err != nil {
			x.fail(fmt.Errorf("receiving from site %d: %w", from, err))
			return
		}
		flag := &x.process.Host[x.flag(int(f.Slot), int(f.Flag))]
		atomic.StoreUint32((*uint32)(unsafe.Pointer(flag)), f.Count)
	}
}

// Connect makes the links; peers has the address of each site.
func (x *site) Connect(peers []string, dial Dial) (err error) {
	if len(peers) <= slices.Max(x.Sites) {
		return fmt.Errorf("expected the addresses of %d sites; found %d", slices.Max(x.Sites)+1, len(peers))
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	out := map[int]*outgoing{}
	defer func() {
		if err != nil { // no segment can run on a part of the links
			for _, l := range out {
				l.close()
			}
			clear(x.links)
		}
	}()
	for from, a := range x.Sites {
		for to, b := range x.Sites {
			at := stream{from, to}
			switch {
			case a == x.Me && b == x.Me && x.Slow.BytesPerSecond > 0 && x.gpus[from].Number >= 0:
				slow, err := newSlow(x, from)
				if err != nil {
					return err
				}
				x.links[at] = peer{x, slow}
			case a == x.Me && b == x.Me:
				x.links[at] = peer{x, nil}
			case b == x.Me:
				x.links[at] = incoming{x}
			case a == x.Me:
				if out[b] == nil {
					conn, err := dial(peers[b], fmt.Sprintf("%s %s %d %d", dataLine, x.Session, x.Me, b))
					if err != nil {
						return fmt.Errorf("site %d: %w", b, err)
					}
					out[b] = newOutgoing(x, b, conn)
				}
				x.links[at] = out[b]
			}
		}
	}
	return nil
}
