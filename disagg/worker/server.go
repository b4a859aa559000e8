package worker

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"strings"
	"sync"
	"time"

	"github.com/muster-sched/muster/disagg/analyze"
	"github.com/muster-sched/muster/gpu/driver"
)

// The first line of a connection says what it is for.
const (
	controlLine = "muster-disagg control"
	dataLine    = "muster-disagg data"
)

// reachable is how long a connection may take to be made, or to say what it is for.
const reachable = 10 * time.Second

// again is how long a server waits after a connection that it could not accept.
const again = 100 * time.Millisecond

// Dial makes a connection to a site, whose first line is written.
type Dial func(address, line string) (net.Conn, error)

// Dialer returns a Dial; without files connections are plain.
func Dialer(files *tls.Config) Dial {
	return func(address, line string) (conn net.Conn, err error) {
		d := &net.Dialer{Timeout: reachable}
		if files == nil {
			conn, err = d.Dial("tcp", address)
		} else {
			conn, err = tls.DialWithDialer(d, "tcp", address, files)
		}
		if err != nil {
			return nil, err
		}
		if _, err := fmt.Fprintln(conn, line); err != nil {
			conn.Close()
			return nil, err
		}
		return conn, nil
	}
}

// Server lets runs of others use the GPUs of this machine, and takes the transfers for sites of this process.
type Server struct {
	Driver driver.Options
	Dial   Dial
	Log    func(format string, args ...any)
	// Own servers take transfers for their own sites, and run nothing for others.
	Own bool

	mu    sync.Mutex
	sites map[string]*site // by session and number
}

// Serve accepts connections until the listener is closed. Without file descriptors for one, it goes on with the next.
func (v *Server) Serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			v.Log("%v", err)
			time.Sleep(again)
		default:
			go v.serve(conn)
		}
	}
}

func (v *Server) serve(conn net.Conn) {
	conn.SetDeadline(time.Now().Add(reachable))
	in := bufio.NewReaderSize(conn, 4096)
	line, err := in.ReadSlice('\n')
	if err != nil {
		conn.Close()
		return
	}
	conn.SetDeadline(time.Time{})
	from := 0
	var session string
	rest, data := strings.CutPrefix(strings.TrimSpace(string(line)), dataLine)
	if !data {
		if rest == controlLine && !v.Own {
			v.control(conn, in)
		}
		conn.Close()
		return
	}
	defer conn.Close()
	to := 0
	if _, err := fmt.Sscan(rest, &session, &from, &to); err != nil {
		return
	}
	v.mu.Lock()
	x := v.sites[name(session, to)]
	v.mu.Unlock()
	if x == nil || from < 0 || from >= MostGPUs {
		v.Log("a connection from %s is for no run that is here", conn.RemoteAddr())
		return
	}
	x.receive(from, in)
}

func name(session string, site int) string { return fmt.Sprintf("%s/%d", session, site) }

// open opens a site of a run, whose transfers Serve takes.
func (v *Server) open(ctx context.Context, s Setup) (*site, error) {
	x, err := openSite(ctx, v.Driver, s)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.sites == nil {
		v.sites = map[string]*site{}
	}
	v.sites[name(s.Session, s.Me)] = x
	return x, nil
}

// Close ends all sites.
func (v *Server) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, x := range v.sites {
		x.Close()
	}
	clear(v.sites)
}

func (v *Server) close(x *site) {
	x.Close()
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.sites, name(x.Session, x.Me))
}

// control serves a run that uses this machine. The site ends with the connection, whatever it waits for.
func (v *Server) control(conn net.Conn, in *bufio.Reader) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	c := &Control{server: v, ctx: ctx}
	r := rpc.NewServer()
	if err := r.RegisterName("Site", c); err != nil {
		v.Log("%v", err)
		return
	}
	v.Log("run from %s begins", conn.RemoteAddr())
	r.ServeConn(buffered{conn, in, func() {
		stop()
		if x, err := c.opened(); err == nil {
			x.fail(errClosed)
		}
	}})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.site != nil {
		v.close(c.site)
	}
	v.Log("run from %s ends", conn.RemoteAddr())
}

// buffered is a connection of which a part was read ahead. It calls ended when nothing more can be read: package net/rpc
// itself then waits for the calls that run.
type buffered struct {
	net.Conn
	in    *bufio.Reader
	ended func()
}

func (b buffered) Read(p []byte) (int, error) {
	n, err := b.in.Read(p)
	if err != nil {
		b.ended()
	}
	return n, err
}

// Control has the calls of a run to a site, for package net/rpc.
type Control struct {
	server *Server
	ctx    context.Context // until the connection ends
	mu     sync.Mutex
	site   *site
}

func (c *Control) opened() (*site, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.site == nil {
		return nil, errors.New("expected Open before all other calls")
	}
	return c.site, nil
}

// Open opens the site. If it misses a library, it says so without an error, whose type the caller would not know.
func (c *Control) Open(s Setup, missing *string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := s.check(); err != nil || c.site != nil {
		return errors.Join(errors.New("expected one good call of Open"), err)
	}
	ctx, stop := context.WithTimeout(c.ctx, s.Deadline)
	defer stop()
	x, err := c.server.open(ctx, s)
	c.site = x
	if no := (*driver.Missing)(nil); errors.As(err, &no) {
		*missing = no.Text
		return nil
	}
	return err
}

// Connect connects the site to the others, by their addresses.
func (c *Control) Connect(peers []string, _ *bool) error {
	x, err := c.opened()
	if err != nil {
		return err
	}
	return x.Connect(peers, c.server.Dial)
}

// Contents are bytes of a region.
type Contents struct {
	Region int
	Offset uint64
	Bytes  []byte
}

// Write writes what a region contains at first.
func (c *Control) Write(a Contents, _ *bool) error {
	x, err := c.opened()
	if err != nil {
		return err
	}
	return x.Write(a.Region, a.Offset, a.Bytes)
}

// Define adds the code of a segment.
func (c *Control) Define(code Code, _ *bool) error {
	x, err := c.opened()
	if err != nil {
		return err
	}
	return x.Define(&code)
}

// Post runs a segment.
func (c *Control) Post(q Post, out *Ended) error {
	x, err := c.opened()
	if err != nil {
		return err
	}
	*out, err = x.Post(q)
	return err
}

// Place is bytes of a request's memory.
type Place struct {
	GPU, Slot int
	Ranges    []analyze.Range
}

// Read reads a request's memory.
func (c *Control) Read(a Place, out *[]byte) error {
	x, err := c.opened()
	if err != nil {
		return err
	}
	*out, err = x.Read(a.GPU, a.Slot, a.Ranges)
	return err
}

// Spent returns the CPU time of the driver's calls.
func (c *Control) Spent(_ bool, out *time.Duration) error {
	x, err := c.opened()
	if err != nil {
		return err
	}
	*out, err = x.Spent()
	return err
}
