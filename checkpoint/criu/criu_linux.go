package criu

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/checkpoint-restore/go-criu/v8/rpc"
)

// Check says whether processes can be saved and brought back here: ErrUnavailable.
func (p Program) Check(ctx context.Context) error {
	if _, err := exec.LookPath(p.path()); err != nil {
		return fmt.Errorf("%w: there is no program criu, version 4.1 or later", ErrUnavailable)
	}
	resp, err := p.call(ctx, &rpc.CriuReq{Type: rpc.CriuReqType_VERSION.Enum()}, nil)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if v := resp.GetVersion(); v.GetMajorNumber()*100+v.GetMinorNumber() < leastVersion {
		return fmt.Errorf("%w: expected criu 4.1 or later; found %d.%d", ErrUnavailable, v.GetMajorNumber(), v.GetMinorNumber())
	}
	out, err := exec.CommandContext(ctx, p.path(), "check").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: criu check: %s", ErrUnavailable, lastLine(out, err))
	}
	return nil
}

// lastLine is what a program said last, or how it ended.
func lastLine(out []byte, err error) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return last
	}
	return err.Error()
}

// Dump saves a process and all that descend from it in an empty folder. When its files are whole,
// and all processes stand still, it calls whole, and if that has no error it ends the processes. In any other case
// all go on: after an error, and if this process dies.
func (p Program) Dump(ctx context.Context, root int, dir string, whole func() error) error {
	tree, err := Tree(root)
	if err == nil {
		err = sharesWithOthers(tree)
	}
	if err != nil {
		return err
	}
	session, err := sessionOf(root)
	if err != nil {
		return err
	}
	if session == 0 { // criu finds that too, when all processes stand still
		return fmt.Errorf("process %d has no session here: it began outside this container, or before the first one, and criu cannot save that; start it by setsid, or by muster run", root)
	}
	about, err := json.Marshal(saved{root, tree, !slices.Contains(tree, session)})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, SavedFile), about, 0o600)
	}
	if err != nil {
		return err
	}
	taken := false
	err = p.act(ctx, rpc.CriuReqType_DUMP, dir, func(o *rpc.CriuOpts) {
		o.Pid, o.ShellJob, o.GhostLimit = pointer(int32(root)), pointer(!slices.Contains(tree, session)), pointer(uint32(ghostBytes))
	}, "post-dump", func(int) error {
		err := whole()
		taken = err == nil
		return err
	})
	for wait := 0; taken && err != nil && wait < 100; wait++ { // criu may have been killed after it had ended the processes, and before it said so
		if !runs(root) {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// Restore brings the processes of a folder back, with their IDs. When all are there and before any of them goes on, it calls there with the one from which
// the others descend; after an error of that, or any other, none is left. ErrRuns: another process has one of the IDs.
func (p Program) Restore(ctx context.Context, dir string, there func(root int) error) error {
	text, err := os.ReadFile(filepath.Join(dir, SavedFile))
	if err != nil {
		return err
	}
	var of saved
	if err := json.Unmarshal(text, &of); err != nil {
		return fmt.Errorf("%s: %w", SavedFile, err)
	}
	if err := areFree(ctx, of.Processes); err != nil {
		return err
	}
	err = p.act(ctx, rpc.CriuReqType_RESTORE, dir, func(o *rpc.CriuOpts) { o.ShellJob = &of.Shell }, "post-restore", there)
	if err != nil { // criu has killed what it made, or was killed, and does not wait until that has ended
		for _, pid := range of.Processes { // there was none before
			if ctx.Err() != nil {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		for errors.Is(areFree(end, of.Processes), ErrRuns) && end.Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
	}
	return err
}

func pointer[T any](v T) *T { return &v }

// act dumps or restores, and calls then at a step. If that has no error, the rest is not interrupted.
func (p Program) act(ctx context.Context, kind rpc.CriuReqType, dir string, set func(*rpc.CriuOpts), step string, then func(pid int) error) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	limit := time.Hour
	if deadline, ok := ctx.Deadline(); ok {
		limit = time.Until(deadline)
	}
	log := strings.ToLower(kind.String()) + ".log"
	o := &rpc.CriuOpts{
		ImagesDirFd: pointer(int32(folder.Fd())), LogFile: &log, LogLevel: pointer(int32(1)), NotifyScripts: pointer(true),
		FileLocks: pointer(true), ManageCgroupsMode: rpc.CriuCgMode_IGNORE.Enum(), Timeout: pointer(uint32(max(1, limit.Seconds()))),
	}
	set(o)
	var failed error // of then
	_, err = p.call(ctx, &rpc.CriuReq{Type: &kind, Opts: o}, func(n *rpc.CriuNotify) (last bool, err error) {
		if last = n.GetScript() == step; last {
			failed = then(int(n.GetPid()))
		}
		return last, failed
	})
	if failed != nil {
		return failed
	}
	if err != nil && ctx.Err() == nil {
		if why := firstError(filepath.Join(dir, log)); why != "" {
			return fmt.Errorf("criu: %s", why)
		}
	}
	return err
}

// firstError is the first error in a log of criu: those after it follow from it.
func firstError(path string) string {
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		if _, what, ok := strings.Cut(line, "Error ("); ok {
			if _, after, ok := strings.Cut(what, "): "); ok && !strings.Contains(what, "rlimit: Can't setup RLIMIT_NOFILE") {
				return strings.TrimSpace(after)
			}
		}
	}
	return ""
}

// Running says whether a criu with the tag is at work, such as one whose caller died: it takes back what it did, or ends what it may.
func (p Program) Running() bool {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	return slices.ContainsFunc(all, func(path string) bool {
		text, _ := os.ReadFile(path)
		return slices.Contains(strings.Split(string(text), "\x00"), tagged+p.Tag)
	})
}

// call runs criu for one request, and asks notify at each step of it. If the context ends, or notify has an error, criu finds
// its socket closed, and takes back what it did; after the last step that may be taken back the context does not count. It runs in a process group of its own: an interrupt of the terminal would end it while
// code of its is in other processes.
func (p Program) call(ctx context.Context, req *rpc.CriuReq, notify func(*rpc.CriuNotify) (last bool, err error)) (*rpc.CriuResp, error) {
	pair, err := syscall.Socketpair(syscall.AF_LOCAL, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "criu"), os.NewFile(uintptr(pair[1]), "criu")
	var said bytes.Buffer
	c := exec.Command(p.path(), "swrk", "3")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.Tag != "" {
		c.Env = append(os.Environ(), tagged+p.Tag)
	}
	c.ExtraFiles, c.Stdout, c.Stderr = []*os.File{theirs}, &said, &said
	err = c.Start()
	theirs.Close()
	if err != nil {
		ours.Close()
		return nil, err
	}
	kind, ended := req.GetType(), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		syscall.Shutdown(pair[0], syscall.SHUT_RDWR)
		if kind != rpc.CriuReqType_RESTORE {
			return // its code may be in processes that run
		}
		select { // it may be waiting for the lock of a file that another process has, and does not look at its socket
		case <-ended:
		case <-time.After(2 * time.Second):
			c.Process.Kill()
		}
	})
	defer func() {
		stop()
		ours.Close() // it ends when it has taken back what is not whole
		c.Wait()
		close(ended)
	}()
	answer, until := make([]byte, 64<<10), ctx
	for {
		text, err := req.MarshalVT()
		if err != nil {
			return nil, err
		}
		n := 0
		if _, err = ours.Write(text); err == nil {
			n, err = ours.Read(answer)
		}
		resp := &rpc.CriuResp{}
		if err == nil {
			err = resp.UnmarshalVT(answer[:n])
		}
		switch {
		case until.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, fmt.Errorf("criu ended early: %w", err)
		case resp.GetType() != rpc.CriuReqType_NOTIFY && resp.GetSuccess():
			return resp, nil
		case resp.GetType() != rpc.CriuReqType_NOTIFY:
			return nil, fmt.Errorf("criu failed with error %d: %s", resp.GetCrErrno(), cmp.Or(resp.GetCrErrmsg(), strings.TrimSpace(said.String())))
		}
		last, err := notify(resp.GetNotify())
		if err != nil {
			return nil, err
		}
		if last {
			if !stop() {
				return nil, context.Cause(ctx)
			}
			until = context.WithoutCancel(ctx)
		}
		req = &rpc.CriuReq{Type: rpc.CriuReqType_NOTIFY.Enum(), NotifySuccess: pointer(true)}
	}
}
