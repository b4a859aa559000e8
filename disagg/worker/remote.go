package worker

import (
	"context"
	"fmt"
	"net/rpc"
	"time"

	"github.com/muster-sched/muster/disagg/analyze"
	"github.com/muster-sched/muster/gpu/driver"
)

// remote is a site of another machine.
type remote struct {
	address  string
	client   *rpc.Client
	ctx      context.Context // of the run
	deadline time.Duration
}

func dialRemote(ctx context.Context, address string, dial Dial, deadline time.Duration) (*remote, error) {
	conn, err := dial(address, controlLine)
	if err != nil {
		return nil, err
	}
	return &remote{address, rpc.NewClient(conn), ctx, deadline}, nil
}

// call makes a call, for which there is a time.
func (r *remote) call(method string, args, out any) error {
	c := r.client.Go("Site."+method, args, out, make(chan *rpc.Call, 1))
	select {
	case <-c.Done:
		if c.Error != nil {
			return fmt.Errorf("%s: %w", r.address, c.Error)
		}
		return nil
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	case <-time.After(r.deadline):
		return fmt.Errorf("%s: no answer within %s", r.address, r.deadline)
	}
}

func (r *remote) Connect(peers []string, _ Dial) error { return r.call("Connect", peers, new(bool)) }
func (r *remote) Define(code *Code) error              { return r.call("Define", code, new(bool)) }
func (r *remote) Close()                               { r.client.Close() }

func (r *remote) Open(s Setup) error {
	var missing string
	if err := r.call("Open", s, &missing); err != nil || missing == "" {
		return err
	}
	return &driver.Missing{Text: r.address + ": " + missing}
}

func (r *remote) Write(region int, offset uint64, data []byte) error {
	return r.call("Write", Contents{region, offset, data}, new(bool))
}

func (r *remote) Post(q Post) (out Ended, err error) {
	err = r.call("Post", q, &out)
	return out, err
}

func (r *remote) Spent() (out time.Duration, err error) {
	err = r.call("Spent", true, &out)
	return out, err
}

func (r *remote) Read(g, slot int, all []analyze.Range) (out []byte, err error) {
	err = r.call("Read", Place{g, slot, all}, &out)
	return out, err
}
