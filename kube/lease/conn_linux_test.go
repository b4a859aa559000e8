package lease

import (
	"context"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
)

// The kernel is told with each write for how long it may send the bytes again: until
// the write is over for this instance. It sends none once the connection is closed.
func TestWritesAreNotSentAgainTooLate(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	f, clock := newTestFence()
	conn, err := fencedDialer(&rest.Config{}, f)(context.Background(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	option := func(name string, get func(fd int) (int, error)) int {
		t.Helper()
		raw, err := conn.(*fencedConn).Conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		if e := raw.Control(func(fd uintptr) { got, err = get(int(fd)) }); e != nil || err != nil {
			t.Fatal(name, e, err)
		}
		return got
	}
	lingers := option("SO_LINGER", func(fd int) (int, error) {
		l, err := unix.GetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER)
		if err != nil || l.Onoff == 0 {
			return -1, err
		}
		return int(l.Linger), nil
	})
	if lingers != 0 {
		t.Errorf("once it is closed, it goes on for %d s (-1: as the kernel likes)", lingers)
	}
	f.renewed(0, clock.read())
	for i, want := range []int{14_000, 11_000, 8_000, 5_000} {
		if i > 0 {
			clock.pass(3 * time.Second)
		}
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		got := option("TCP_USER_TIMEOUT", func(fd int) (int, error) {
			return unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
		})
		if got != want {
			t.Errorf("what was written is sent again for %d ms, want %d", got, want)
		}
	}
}
