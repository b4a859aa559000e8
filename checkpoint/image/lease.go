package image

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A lease is a claim, which is written once, and a sign of life beside it, which is
// written again and again. Who finds a sign of life that is too old deletes the
// claim, and its owner, if it still lives, finds that out at the end. So no clock
// decides whether an image is whole, only when another one may go ahead.
//
// Saves and collections exclude each other: each writes its claim first and looks for
// those of the others then. A collection gives way, a save waits.
const (
	leaseFor   = 2 * time.Minute
	leaseRenew = 30 * time.Second
	leasePoll  = 200 * time.Millisecond

	saving     = "save-"
	collecting = "collect-"
	alive      = ".alive"
)

// BusyError is a collection that has to wait for a save.
type BusyError struct{ Owner string }

func (e *BusyError) Error() string {
	return fmt.Sprintf("an image is being saved (%s): try again when that has ended; a save that died counts for %v", e.Owner, leaseFor)
}

// errBroken is a lease that another one took away.
var errBroken = errors.New("the save gave no sign of life for too long, and regions were collected meanwhile: save again")

// owner is what a lease says about its owner, for people to read.
type owner struct {
	Host string `json:"host"`
	PID  int    `json:"pid"`
}

func (o owner) String() string { return fmt.Sprintf("process %d on %s", o.PID, o.Host) }

type lease struct {
	store  Store
	object string
	fresh  atomic.Int64 // when it runs out, Unix time in ns
	stop   context.CancelFunc
	ended  sync.WaitGroup
}

// take takes a lease of the kind, and renews it until end.
func take(ctx context.Context, store Store, kind string) (*lease, error) {
	l := &lease{store: store, object: "leases/" + kind + strings.ToLower(rand.Text())}
	if err := l.renew(ctx); err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	text, err := json.Marshal(owner{host, os.Getpid()})
	if err == nil {
		err = store.Put(ctx, l.object, text)
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	if err != nil {
		l.end()
		return nil, err
	}
	l.ended.Go(func() {
		for {
			select {
			case <-work.Done():
				return
			case <-time.After(leaseRenew):
				if errors.Is(l.held(work), errBroken) {
					return
				}
				_ = l.renew(work) // the next one may succeed; who finds it too old breaks it
			}
		}
	})
	return l, nil
}

func (l *lease) renew(ctx context.Context) error {
	until := time.Now().Add(leaseFor)
	text, err := until.UTC().MarshalText()
	if err == nil {
		err = l.store.Put(ctx, l.object+alive, text)
	}
	if err == nil {
		l.fresh.Store(until.UnixNano())
	}
	return err
}

// hasTime says whether the sign of life is not too old.
func (l *lease) hasTime() bool { return time.Now().UnixNano() < l.fresh.Load() }

// held says whether no other one has broken the lease.
func (l *lease) held(ctx context.Context) error {
	has, err := l.store.Has(ctx, l.object)
	if err == nil && !has {
		err = errBroken
	}
	return err
}

// end gives the lease back, also if the caller was interrupted.
func (l *lease) end() {
	l.stop()
	l.ended.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = l.store.Delete(ctx, l.object) // what stays runs out
	_ = l.store.Delete(ctx, l.object+alive)
}

// holder finds a lease of the kind whose owner lives; "" if there is none. It breaks the others.
func holder(ctx context.Context, store Store, kind string) (string, error) {
	objects, err := store.List(ctx, "leases/"+kind)
	if err != nil {
		return "", err
	}
	for _, o := range objects {
		object, isAlive := strings.CutSuffix(o.Name, alive)
		var until time.Time
		text, err := store.Get(ctx, object+alive)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if err == nil && until.UnmarshalText(text) == nil && time.Now().Before(until) {
			if isAlive {
				continue // its claim is not written yet, and it will look for others then
			}
			has := owner{}
			if text, err := store.Get(ctx, object); err == nil {
				_ = json.Unmarshal(text, &has)
			}
			return has.String(), nil
		}
		if err := errors.Join(store.Delete(ctx, object), store.Delete(ctx, object+alive)); err != nil {
			return "", err
		}
	}
	return "", nil
}

// Claim is a name that its owner alone has, in a store.
type Claim struct{ lease *lease }

// Release gives the name back. If the owner dies before, that counts for 2 minutes.
func (c *Claim) Release() { c.lease.end() }

// ErrLost is a claim that was broken.
var ErrLost = fmt.Errorf("the store took no sign of life for %v, and the name may be another one's", leaseFor)

// Held is ErrLost if another one may have the name by now, as the store took no sign of life for too long.
func (c *Claim) Held(ctx context.Context) error {
	err := c.lease.held(ctx)
	if errors.Is(err, errBroken) {
		err = ErrLost
	}
	return err
}

// Claim gives the caller a name that no other one has at the same time, in this store, and waits until it can. waiting is called once, with who has it, if it
// has to.
func (im *Images) Claim(ctx context.Context, name string, waiting func(owner string)) (*Claim, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	kind, told := "name/"+name+"/", false
	for {
		owner, err := holder(ctx, im.Store, kind)
		var l *lease
		if err == nil && owner == "" {
			// Of two that find no other one and claim at the same time, both give way, and try again at different times.
			if l, err = take(ctx, im.Store, kind); err == nil {
				var n int
				if n, err = living(ctx, im.Store, kind); err == nil && n == 1 {
					return &Claim{l}, nil
				}
				l.end()
			}
		}
		if err != nil {
			return nil, err
		}
		if owner != "" && !told {
			told = true
			waiting(owner)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(leasePoll + mathrand.N(leasePoll)):
		}
	}
}

// living counts the leases of a kind, claims that are not written yet included.
func living(ctx context.Context, store Store, kind string) (int, error) {
	objects, err := store.List(ctx, "leases/"+kind)
	n := 0
	for _, o := range objects {
		if strings.HasSuffix(o.Name, alive) {
			n++
		}
	}
	return n, err
}

// leaseToSave takes a lease that keeps collections away, when those under way have ended.
func leaseToSave(ctx context.Context, store Store) (*lease, error) {
	l, err := take(ctx, store, saving)
	for err == nil {
		var owner string
		if owner, err = holder(ctx, store, collecting); err != nil || owner == "" {
			break
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(leasePoll):
		}
	}
	if err != nil && l != nil {
		l.end()
	}
	return l, err
}

// Collected is what a collection removed, or would remove.
type Collected struct {
	Regions int   `json:"regions"`
	Bytes   int64 `json:"storedBytes"`
}

// Collect removes the regions that no image names; dry only counts them. BusyError while an image is
// being saved. It needs 32 bytes of memory for each region that an image names. An
// image that cannot be read ends it: its regions would be lost.
func (im *Images) Collect(ctx context.Context, dry bool) (Collected, error) {
	var sum Collected
	l, err := take(ctx, im.Store, collecting)
	if err != nil {
		return sum, err
	}
	defer l.end()
	if owner, err := holder(ctx, im.Store, saving); err != nil || owner != "" {
		return sum, errors.Join(err, busy(owner))
	}
	named, err := im.named(ctx)
	if err != nil {
		return sum, err
	}
	regions, err := im.Store.List(ctx, "regions/")
	if err != nil {
		return sum, err
	}
	for _, o := range regions {
		if named[o.Name[strings.LastIndexByte(o.Name, '/')+1:]] {
			continue
		}
		if !dry {
			if !l.hasTime() {
				return sum, errors.New("the store did not take a sign of life for too long: collect again")
			}
			if err := im.Store.Delete(ctx, o.Name); err != nil {
				return sum, err
			}
		}
		sum.Regions++
		sum.Bytes += o.Bytes
	}
	if d, ok := im.Store.(Dir); ok && !dry {
		return sum, d.sweep(ctx)
	}
	return sum, nil
}

func busy(owner string) error {
	if owner == "" {
		return nil
	}
	return &BusyError{owner}
}

// named has the names of all regions of all images, in hexadecimal.
func (im *Images) named(ctx context.Context) (map[string]bool, error) {
	all, err := im.List(ctx)
	if err != nil {
		return nil, err
	}
	named := map[string]bool{}
	for _, e := range all {
		m, err := im.Manifest(ctx, e)
		if err != nil {
			return nil, fmt.Errorf("%w; nothing is removed while an image cannot be read", err)
		}
		for n := range m.names() {
			named[n.text()] = true
		}
	}
	return named, nil
}
