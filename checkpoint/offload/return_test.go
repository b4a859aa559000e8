//go:build linux

package offload_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/muster-sched/muster/checkpoint/criu"
	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/checkpoint/offload"
	"github.com/muster-sched/muster/gpu"
	"github.com/muster-sched/muster/gpu/gputest"
)

// Whoever dies at any step of a return, the next one ends it: the process goes on with its memory, once, and has no image. After an error it is not
// there, and the image is.
func TestReturn(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	n := gputest.NewNode(t, 64)
	images, dir := store(t)
	w := wholeOf(t, n, images)
	p := n.StartWithFiles(t)
	go p.Wait() // as a shell
	p.Do("alloc %d", mib)
	p.Send("train 0 %d 10", mib)
	sum := p.Until("sum ")
	kept := func(*offload.Steps) error { return nil }
	full := errors.New("the disk is full")
	for name, c := range map[string]struct {
		images *image.Images
		before func(e image.Entry) *offload.Steps
		fails  string
	}{
		"nothing was begun": {images, func(image.Entry) *offload.Steps { return &offload.Steps{Keep: kept} }, ""},
		"died before it made the process": {images, func(image.Entry) *offload.Steps {
			return &offload.Steps{Making: []int{p.PID}, Keep: kept}
		}, ""},
		"died when the process was made": {images, func(e image.Entry) *offload.Steps {
			if _, _, err := w.BringBack(ctx, e, 10*time.Second); err != nil {
				t.Fatal(err)
			}
			return &offload.Steps{Making: []int{p.PID}, Keep: kept}
		}, ""},
		"died before it deleted the image": {images, func(e image.Entry) *offload.Steps {
			if _, _, err := w.BringBack(ctx, e, 10*time.Second); err != nil {
				t.Fatal(err)
			}
			return &offload.Steps{Making: []int{p.PID}, Back: []int{p.PID}, Keep: kept}
		}, ""},
		"died when the image was deleted": {images, func(e image.Entry) *offload.Steps {
			if _, _, err := w.BringBack(ctx, e, 10*time.Second); err != nil {
				t.Fatal(err)
			}
			if err := images.Delete(ctx, e); err != nil {
				t.Fatal(err)
			}
			return &offload.Steps{Making: []int{p.PID}, Back: []int{p.PID}, Keep: kept}
		}, ""},
		"that the process is back cannot be kept": {images, func(image.Entry) *offload.Steps {
			return &offload.Steps{Keep: func(s *offload.Steps) error {
				if len(s.Back) > 0 {
					return full
				}
				return nil
			}}
		}, full.Error()},
		"the image cannot be deleted": {&image.Images{Store: stays{dir}}, func(image.Entry) *offload.Steps { return &offload.Steps{Keep: kept} }, full.Error()},
	} {
		saved, err := w.Checkpoint(ctx, p.PID, "image", once)
		if err != nil {
			t.Fatal(name, err)
		}
		steps := c.before(saved.Entry)
		w.Images = c.images
		err = w.Return(ctx, saved.ID, steps, 10*time.Second)
		w.Images = images
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) || gpu.Alive(p.PID) {
				t.Fatalf("%s: %v; the process is there: %t", name, err, gpu.Alive(p.PID))
			}
			err = w.Return(ctx, saved.ID, &offload.Steps{Keep: kept}, 10*time.Second)
		}
		if all, _ := images.List(ctx); err != nil || len(all) > 0 {
			t.Fatal(name, err, all)
		}
		if got := strings.TrimPrefix(p.Do("sum 0 %d", mib), "sum "); got != sum {
			t.Fatalf("%s: %s; before %s", name, got, sum)
		}
	}

	// The store is away when a caller begins again: what the one that died has made waits, so its image is not to be used elsewhere.
	for name, c := range map[string]struct {
		store image.Store
		back  []int
	}{"no list": {unlisted{dir}, nil}, "no manifest": {unread{dir}, []int{p.PID}}, "no list, and it is back": {unlisted{dir}, []int{p.PID}}} {
		saved, err := w.Checkpoint(ctx, p.PID, "image", once)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := w.BringBack(ctx, saved.Entry, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		steps := &offload.Steps{Making: []int{p.PID}, Back: c.back, Keep: kept}
		w.Images = &image.Images{Store: c.store}
		err = w.Return(ctx, saved.ID, steps, 10*time.Second)
		w.Images = images
		if !errors.Is(err, offload.ErrUnfinished) {
			t.Errorf("%s: %v", name, err)
		}
		if err := w.Return(ctx, saved.ID, steps, 10*time.Second); err != nil {
			t.Fatal(name, err)
		}
		if got := strings.TrimPrefix(p.Do("sum 0 %d", mib), "sum "); got != sum {
			t.Fatalf("%s: %s; before %s", name, got, sum)
		}
	}

	// Another process that has the ID is not the one of a caller who died: it stays.
	saved, err := w.Checkpoint(ctx, p.PID, "image", once)
	if err != nil {
		t.Fatal(err)
	}
	if same, err := w.IsOf(ctx, saved.Entry); err != nil || same {
		t.Error("the image is of a process that has ended", same, err)
	}
	if _, _, err := w.BringBack(ctx, saved.Entry, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := w.Return(ctx, saved.ID, &offload.Steps{Keep: kept}, 10*time.Second); !errors.Is(err, criu.ErrRuns) || errors.Is(err, offload.ErrUnfinished) || !gpu.Alive(p.PID) {
		t.Errorf("%v; the process is there: %t", err, gpu.Alive(p.PID))
	}
}

// stays is a store that deletes no image.
type stays struct{ image.Dir }

func (stays) Delete(context.Context, string) error { return errors.New("the disk is full") }

// unlisted is a store that cannot be listed, and unread one whose images cannot be read.
type (
	unlisted struct{ image.Dir }
	unread   struct{ image.Dir }
)

var errAway = errors.New("the store does not answer")

func (unlisted) List(context.Context, string) ([]image.Object, error) { return nil, errAway }

func (s unread) Get(ctx context.Context, name string) ([]byte, error) {
	if strings.HasPrefix(name, "images/") {
		return nil, errAway
	}
	return s.Dir.Get(ctx, name)
}
