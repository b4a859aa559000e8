package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/muster-sched/muster/checkpoint"
	"github.com/muster-sched/muster/checkpoint/image"
	"github.com/muster-sched/muster/checkpoint/offload"
	"github.com/muster-sched/muster/internal/table"
)

func newImage() *cobra.Command {
	c := &cobra.Command{
		Use:   "image COMMAND",
		Short: "Keep the memory of paused processes as images, elsewhere",
		Long: `Image stores the GPU memory that muster pause copied to the host in a folder or a bucket, as
regions that are stored once, compressed and, with --key, encrypted. With --move the
copy on the host is removed: the processes stay paused, and need that memory again
before muster resume. An image is good for the very pause of which it was made.`,
		Example: `  muster pause 4711 4712
  muster image save 4711 4712 --store /data/images --name llama --move
  muster image restore llama --store /data/images
  muster resume 4711 4712`,
	}
	c.AddCommand(newImageSave(), newImageRestore(), newImageList(), newImageShow(), newImageVerify(), newImageDelete(), newImageCollect())
	return c
}

// storeFlags say where images are.
type storeFlags struct {
	store, key string
	asJSON     bool
}

func (f *storeFlags) register(c *cobra.Command) {
	f.place(c)
	c.Flags().BoolVar(&f.asJSON, "json", false, "print JSON objects, each on a line")
}

func (f *storeFlags) place(c *cobra.Command) {
	c.Flags().StringVar(&f.store, "store", "", "where the images are: a `FOLDER`, or s3://BUCKET/PREFIX")
	c.Flags().StringVar(&f.key, "key", "", "the `FILE` of the key of encrypted images: 64 hexadecimal digits")
}

// open opens the store; with create it may be a new one.
func (f *storeFlags) open(c *cobra.Command, create bool) (*image.Images, error) {
	if f.store == "" {
		return nil, badUsage(c, "--store: expected a folder, or s3://BUCKET/PREFIX; found none")
	}
	return f.openAs(c.Context(), "", create)
}

// openAs is open for flags whose names have a prefix.
func (f *storeFlags) openAs(ctx context.Context, prefix string, create bool) (*image.Images, error) {
	var key *image.Key
	if f.key != "" {
		info, err := os.Stat(f.key)
		if err != nil {
			return nil, &usageError{"--" + prefix + "key: " + err.Error()}
		}
		if info.Mode().Perm()&0o007 != 0 {
			return nil, &usageError{fmt.Sprintf("--%skey: %s: expected a file that others cannot read; found mode %04o: chmod 600 it", prefix, f.key, info.Mode().Perm())}
		}
		text, err := os.ReadFile(f.key)
		if err == nil {
			key, err = image.ParseKey(text)
		}
		if err != nil {
			return nil, &usageError{fmt.Sprintf("--%skey: %s: %v", prefix, f.key, err)}
		}
	}
	var store image.Store = image.Dir(f.store)
	if strings.HasPrefix(f.store, "s3://") {
		bucket, err := image.OpenS3(f.store)
		if err != nil {
			return nil, &usageError{"--" + prefix + "store: " + err.Error()}
		}
		store = bucket
	}
	images, err := image.Open(ctx, store, key, create)
	switch {
	case errors.Is(err, image.ErrKey) && key == nil:
		return nil, &usageError{f.store + ": its images are encrypted: expected --" + prefix + "key"}
	case errors.Is(err, image.ErrKey):
		return nil, &usageError{f.store + ": its images have another key than " + f.key + ", or none"}
	case errors.Is(err, image.ErrNoStore):
		return nil, &usageError{"--" + prefix + "store: " + f.store + ": " + err.Error()}
	case err != nil:
		return nil, fmt.Errorf("--%sstore: %w", prefix, err)
	}
	return images, nil
}

// meter shows how far the reading of images is: a bar on a terminal, a line every few seconds elsewhere.
type meter struct {
	mu          sync.Mutex
	out         io.Writer
	bar         *progressbar.ProgressBar // nil elsewhere
	step        string
	began, next time.Time
	done, total int64
}

// begin begins a step that reads so many bytes.
func (m *meter) begin(step string, total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clear()
	m.step, m.total, m.done, m.began = step, total, 0, time.Now()
	m.next = m.began.Add(lineEvery)
	if f, ok := table.Raw(m.out).(*os.File); ok && term.IsTerminal(int(f.Fd())) && total > 0 {
		m.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(f), progressbar.OptionSetDescription(step),
			progressbar.OptionShowBytes(true), progressbar.OptionSetPredictTime(true), progressbar.OptionFullWidth(),
			progressbar.OptionThrottle(barEvery), progressbar.OptionClearOnFinish())
	}
}

func (m *meter) add(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done += n
	if m.bar != nil {
		_ = m.bar.Set64(min(m.done, m.total-1))
		return
	}
	if t := time.Now(); t.After(m.next) && m.total > 0 {
		m.next = t.Add(lineEvery)
		left := time.Duration(float64(t.Sub(m.began)) * float64(m.total-m.done) / float64(m.done))
		fmt.Fprintf(m.out, "muster: %s: %s of %s, about %v left\n", m.step, mebibytes(m.done), mebibytes(m.total), left.Round(time.Second))
	}
}

// clear removes the bar.
func (m *meter) clear() {
	if m.bar != nil {
		_ = m.bar.Finish()
		m.bar = nil
	}
}

func (m *meter) finish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clear()
}

func newMeter(c *cobra.Command, images *image.Images) *meter {
	m := &meter{out: c.ErrOrStderr()}
	images.Progress = m.add
	return m
}

func newImageSave() *cobra.Command {
	var (
		at        storeFlags
		dir, name string
		move      bool
	)
	c := &cobra.Command{
		Use:   "save PID...",
		Short: "Store the saved memory of paused processes as an image",
		Long: `Save stores the memory of processes that muster pause has paused as one image, and
compares it with the checksums that were made when it was copied from the GPU. Bytes
that the store has already are not stored again.

With --move the image is verified, and the memory on the host is then removed.
muster image restore writes it back; until then muster resume refuses.`,
		Example: `  muster image save 4711 --store /data/images
  (umask 077; openssl rand -hex 32 >image.key)
  muster image save 4711 4712 --store /data/images --key image.key --name llama --move`,
		RunE: func(c *cobra.Command, args []string) error {
			pids, err := processes(c, args, false)
			if err != nil {
				return err
			}
			if name != "" {
				if err := image.CheckName(name); err != nil {
					return badUsage(c, "--name: %v", err)
				}
			}
			shim := &checkpoint.Shim{Dir: dir, Lease: pauseLease}
			defer shim.Close()
			for _, pid := range pids { // before a store is begun
				if phase, err := shim.Phase(pid); err != nil {
					return pauseError(dir, fmt.Errorf("process %d: %w", pid, err))
				} else if phase != checkpoint.Saved {
					return fmt.Errorf("process %d: %w; found %s: muster pause it first", pid, checkpoint.ErrNotPaused, phase)
				}
			}
			images, err := at.open(c, true)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(c)
			defer stop()
			m, began := newMeter(c, images), time.Now()
			saved, err := offload.Save(ctx, shim, images, offload.Job{Name: name, PIDs: pids, Move: move, Step: m.begin})
			m.finish()
			if err != nil {
				return pauseError(dir, interrupted(ctx, err))
			}
			then := ""
			if move {
				then = memoryFree
			}
			return writeSaved(c, saved, then, time.Since(began), at.asJSON)
		},
	}
	at.register(c)
	dirFlag(c, &dir)
	c.Flags().StringVar(&name, "name", "", "a `NAME` for the image, which no other one has; it has an ID in any case")
	c.Flags().BoolVar(&move, "move", false, "remove the memory on the host when the image was verified")
	return c
}

// memoryFree is what follows from a move.
const memoryFree = "the memory on the host is free"

// writeSaved says what was saved, and what follows.
func writeSaved(c *cobra.Command, saved image.Saved, then string, took time.Duration, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(c.OutOrStdout()).Encode(saved)
	}
	if then != "" {
		then = "; " + then
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "image %s: %s, of which %s are new in the store%s\nin %v\n",
		saved.Entry, mebibytes(saved.Bytes), mebibytes(saved.Written), then, took.Round(time.Millisecond))
	return err
}

// interrupted says so of an error that an interrupt made.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return fmt.Errorf("interrupted: %w", err)
	}
	return err
}

func newImageRestore() *cobra.Command {
	var (
		at   storeFlags
		dir  string
		pids []int
	)
	c := &cobra.Command{
		Use:   "restore {IMAGE | --pid PID}",
		Short: "Write the memory of paused processes back from an image",
		Long: `Restore writes the memory of the processes of an image back to the host, so that
muster resume can continue them: all, or those of --pid. The image must be of the very
pause in which the process is; without an image the store is searched for that one.
No byte is used that was not verified. Memory that is there and whole is not replaced.`,
		Example: `  muster image restore llama --store /data/images
  muster image restore --pid 4711 --store /data/images && muster resume 4711`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 0 && len(pids) == 0 {
				return badUsage(c, "expected an image, or --pid; found %d arguments", len(args))
			}
			for _, pid := range pids {
				if _, err := processes(c, []string{strconv.Itoa(pid)}, false); err != nil {
					return err
				}
			}
			images, err := at.open(c, false)
			if err != nil {
				return err
			}
			shim := &checkpoint.Shim{Dir: dir, Lease: pauseLease}
			defer shim.Close()
			ctx, stop := interruptible(c)
			defer stop()
			var e image.Entry
			if len(args) == 1 {
				e, err = images.Find(ctx, args[0])
			} else {
				e, err = offload.Find(ctx, images, shim, pids[0])
			}
			if err != nil {
				return pauseError(dir, err)
			}
			m, began := newMeter(c, images), time.Now()
			done, err := offload.Restore(ctx, shim, images, e, pids, m.begin)
			m.finish()
			if err != nil {
				return pauseError(dir, interrupted(ctx, err))
			}
			return writeRestored(c, done, time.Since(began), at.asJSON)
		},
	}
	at.register(c)
	dirFlag(c, &dir)
	c.Flags().IntSliceVar(&pids, "pid", nil, "restore the memory of these processes only, such as 4711,4712")
	return c
}

func writeRestored(c *cobra.Command, done []offload.Restored, took time.Duration, asJSON bool) error {
	w := c.OutOrStdout()
	t := table.Table{Align: "rrl"}
	t.Add("PID", "MEMORY", "")
	for _, r := range done {
		if asJSON {
			if err := json.NewEncoder(w).Encode(r); err != nil {
				return err
			}
			continue
		}
		what := "restored"
		if r.Was {
			what = "was there"
		}
		t.Add(strconv.Itoa(r.PID), mebibytes(r.Bytes), what)
	}
	if asJSON {
		return nil
	}
	if err := t.Write(w, 0); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "in %v; muster resume continues them\n", took.Round(time.Millisecond))
	return err
}

// listed is an image as list and show print it.
type listed struct {
	image.Entry
	Created   time.Time `json:"created"`
	Host      string    `json:"host,omitempty"`
	Processes []process `json:"processes"`
	Whole     bool      `json:"whole"` // the processes themselves are in the image
	Bytes     int64     `json:"bytes"`
}

type process struct {
	image.Process
	Bytes  int64 `json:"bytes"`
	Ranges int   `json:"ranges"`
}

func listedOf(e image.Entry, m *image.Manifest) listed {
	l := listed{Entry: e, Created: m.Created, Host: m.Host, Whole: m.Whole(), Bytes: m.Bytes()}
	for i := range m.Ranks {
		l.Processes = append(l.Processes, process{m.Ranks[i].Process, m.Ranks[i].FileBytes, len(m.Ranks[i].Ranges)})
	}
	return l
}

func newImageList() *cobra.Command {
	var at storeFlags
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the images of a store",
		Long:    "List lists the images of a store. It reads their manifests, not their regions.",
		Example: "  muster image list --store /data/images",
		Args:    arguments(),
		RunE: func(c *cobra.Command, _ []string) error {
			images, err := at.open(c, false)
			if err != nil {
				return err
			}
			all, err := images.List(c.Context())
			if err != nil {
				return err
			}
			t := table.Table{Align: "lrrlll"}
			t.Add("IMAGE", "PROCESSES", "MEMORY", "CREATED", "HOST", "NAME")
			var unread error
			for _, e := range all {
				m, err := images.Manifest(c.Context(), e)
				if err != nil {
					unread = errors.Join(unread, err)
					continue
				}
				l := listedOf(e, m)
				if at.asJSON {
					if err := json.NewEncoder(c.OutOrStdout()).Encode(l); err != nil {
						return err
					}
				}
				t.Add(e.ID, strconv.Itoa(len(l.Processes)), mebibytes(l.Bytes), l.Created.Local().Format(time.DateTime), l.Host, e.Name)
			}
			if at.asJSON {
				return unread
			}
			width, _ := terminal(c.OutOrStdout())
			return errors.Join(unread, t.Write(c.OutOrStdout(), width))
		},
	}
	at.register(c)
	return c
}

// withImage opens the store and the image that the argument names.
func withImage(c *cobra.Command, at *storeFlags, ref string) (*image.Images, image.Entry, error) {
	images, err := at.open(c, false)
	if err != nil {
		return nil, image.Entry{}, err
	}
	e, err := images.Find(c.Context(), ref)
	return images, e, err
}

func newImageShow() *cobra.Command {
	var at storeFlags
	c := &cobra.Command{
		Use:     "show IMAGE",
		Short:   "Show of which processes an image is",
		Long:    "Show shows the processes of an image, and of which of their pauses it is.",
		Example: "  muster image show llama --store /data/images",
		Args:    arguments("IMAGE"),
		RunE: func(c *cobra.Command, args []string) error {
			images, e, err := withImage(c, &at, args[0])
			if err != nil {
				return err
			}
			m, err := images.Manifest(c.Context(), e)
			if err != nil {
				return err
			}
			l := listedOf(e, m)
			w := c.OutOrStdout()
			if at.asJSON {
				return json.NewEncoder(w).Encode(l)
			}
			fmt.Fprintf(w, "image %s, saved %s on %s\n", table.Printable(e.String()), l.Created.Local().Format(time.DateTime), table.Printable(l.Host))
			t := table.Table{Align: "rrrrr"}
			t.Add("PID", "STARTED AT TICK", "SAVE", "MEMORY", "RANGES")
			for _, p := range l.Processes {
				t.Add(strconv.Itoa(p.PID), strconv.FormatUint(p.Started, 10), strconv.Itoa(int(p.Saves)), mebibytes(p.Bytes), strconv.Itoa(p.Ranges))
			}
			if err := t.Write(w, 0); err != nil || !l.Whole {
				return err
			}
			_, err = fmt.Fprintf(w, "with the processes themselves: muster restore --image %s brings them back\n", e.ID)
			return err
		},
	}
	at.register(c)
	return c
}

func newImageVerify() *cobra.Command {
	var at storeFlags
	c := &cobra.Command{
		Use:     "verify [IMAGE...]",
		Short:   "Read images, and compare them with their checksums",
		Long:    "Verify reads all of the images named, or of all images, and compares each byte with\nwhat was saved. The exit code is 1 if one of them is damaged.",
		Example: "  muster image verify --store /data/images\n  muster image verify llama --store /data/images --key image.key",
		RunE: func(c *cobra.Command, args []string) error {
			images, err := at.open(c, false)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(c)
			defer stop()
			var all []image.Entry
			for _, ref := range args {
				e, err := images.Find(ctx, ref)
				if err != nil {
					return err
				}
				all = append(all, e)
			}
			if len(args) == 0 {
				if all, err = images.List(ctx); err != nil {
					return err
				}
			}
			return verifyImages(ctx, c, images, all, at.asJSON)
		},
	}
	at.register(c)
	return c
}

func verifyImages(ctx context.Context, c *cobra.Command, images *image.Images, all []image.Entry, asJSON bool) error {
	var wrong error
	for _, e := range all {
		m := newMeter(c, images)
		manifest, err := images.Manifest(ctx, e)
		if err == nil {
			m.begin("verifying", manifest.Bytes())
			err = images.Verify(ctx, e)
			m.finish()
		}
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted: %w", ctx.Err())
		}
		if wrong = errors.Join(wrong, err); err != nil && !asJSON {
			continue
		}
		if asJSON {
			if err := json.NewEncoder(c.OutOrStdout()).Encode(struct {
				image.Entry
				Whole bool `json:"whole"`
			}{e, err == nil}); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(c.OutOrStdout(), "image %s is whole\n", e)
	}
	return wrong
}

func newImageDelete() *cobra.Command {
	var (
		at    storeFlags
		dir   string
		force bool
	)
	c := &cobra.Command{
		Use:   "delete IMAGE",
		Short: "Delete an image",
		Long: `Delete deletes an image. Its regions stay until muster image collect, as others may
have them. An image that a paused process of this machine needs to go on is deleted
only with --force, and so is one that cannot be read.`,
		Example: "  muster image delete llama --store /data/images\n  muster image collect --store /data/images",
		Args:    arguments("IMAGE"),
		RunE: func(c *cobra.Command, args []string) error {
			images, e, err := withImage(c, &at, args[0])
			if err != nil {
				return err
			}
			if !force {
				m, err := images.Manifest(c.Context(), e)
				if err != nil {
					return fmt.Errorf("%w; --force deletes it", err)
				}
				if pid := offload.Needed(dir, m); pid > 0 {
					return fmt.Errorf("image %s: process %d is paused and can only go on with it: restore it first; --force deletes it", e.ID, pid)
				}
			}
			if err := images.Delete(c.Context(), e); err != nil {
				return err
			}
			if at.asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(e)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "image %s is deleted\n", e)
			return err
		},
	}
	at.register(c)
	dirFlag(c, &dir)
	c.Flags().BoolVar(&force, "force", false, "delete it also if a process needs it, or if it cannot be read")
	return c
}

func newImageCollect() *cobra.Command {
	var (
		at  storeFlags
		dry bool
	)
	c := &cobra.Command{
		Use:   "collect",
		Short: "Remove what no image needs from a store",
		Long: `Collect removes the regions that no image has, and what saves that died left. It
refuses while an image is being saved, and removes nothing if one cannot be read.`,
		Example: "  muster image collect --store /data/images --dry-run\n  muster image collect --store /data/images",
		Args:    arguments(),
		RunE: func(c *cobra.Command, _ []string) error {
			images, err := at.open(c, false)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(c)
			defer stop()
			sum, err := images.Collect(ctx, dry)
			if err != nil {
				return interrupted(ctx, err)
			}
			if at.asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(sum)
			}
			what := "removed"
			if dry {
				what = "would remove"
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s %d regions, %s\n", what, sum.Regions, mebibytes(sum.Bytes))
			return err
		},
	}
	at.register(c)
	c.Flags().BoolVar(&dry, "dry-run", false, "only say what would be removed")
	return c
}
