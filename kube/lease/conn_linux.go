package lease

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// giveUpAfter makes the kernel drop a TCP connection on which sent bytes were not
// acknowledged for d, rather than retransmit them for a quarter of an hour. It ignores
// other connections.
func giveUpAfter(c net.Conn, d time.Duration) error {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	ms := max(1, int(d.Milliseconds())) // 0 would be as long as without
	if e := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, ms)
	}); e != nil {
		return e
	}
	return err
}
