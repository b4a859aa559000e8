//go:build !linux

package lease

import (
	"net"
	"time"
)

// giveUpAfter does nothing: these systems retransmit for their own time.
func giveUpAfter(net.Conn, time.Duration) error { return nil }
