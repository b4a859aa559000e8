package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/kube/console"
)

// A list that is watched is read again and written each time, until it is
// interrupted, or cannot be read.
func TestWatch(t *testing.T) {
	broken := errors.New("broken")
	for _, end := range []error{nil, broken} {
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		var out bytes.Buffer
		c := &cobra.Command{}
		c.SetContext(ctx)
		c.SetOut(&out)
		reads := 0
		f := listFlags{watch: true, every: time.Millisecond}
		err := f.show(c, console.View{}, func(ctx context.Context) (page, error) {
			reads++
			if reads == 4 && end != nil {
				return page{}, end
			}
			if reads == 4 {
				stop()
				return page{}, ctx.Err()
			}
			return page{nil, func(w io.Writer, v *console.View) error {
				if v.Now.IsZero() {
					t.Error("the view has no time")
				}
				_, err := fmt.Fprintln(w, "read", reads)
				return err
			}}, nil
		})
		if !errors.Is(err, end) || out.String() != "read 1\nread 2\nread 3\n" {
			t.Errorf("ended by %v: got %v after\n%s", end, err, &out)
		}
	}
}

func TestHead(t *testing.T) {
	for lines, want := range map[int]string{0: "a\n", 1: "a\n", 2: "a\nb\n", 9: "a\nb\nc\n"} {
		if got := head("a\nb\nc\n", lines); got != want {
			t.Errorf("%d lines: got %q, want %q", lines, got, want)
		}
	}
}
