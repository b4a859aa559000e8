//go:build linux

// Command interpreter runs the kernels of one device of the fake driver (gpu/fake) on that
// driver's memory, which is its parent's: gpu/fake/kernels.inc starts it. It reads requests
// from its input, one a line, and answers all but the first two by a line, "ok", or "no" and why.
//
//	map ADDRESS BYTES FD        the parent's file descriptor
//	unmap ADDRESS
//	module BYTES, then the text
//	function MODULE NAME
//	launch MODULE NAME GX GY GZ BX BY BZ SHARED ARGUMENTS
//
// Modules have numbers from 0 on. Arguments are packed, each aligned as its type, in hexadecimal digits.
package main

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/muster-sched/muster/disagg/ptx"
	"github.com/muster-sched/muster/disagg/ptx/interp"
)

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fake GPU:", err)
		os.Exit(1)
	}
}

// device is what is mapped, and the modules that were loaded. Each module has a memory of its own, which shares the
// mappings: the variables of two would have the same addresses.
type device struct {
	mapped  []*interp.Buffer
	modules []*module
}

type module struct {
	memory  interp.Memory
	program *interp.Program
	kernels map[string]*ptx.Function
}

func serve(in io.Reader, out io.Writer) error {
	lines := make(chan request)
	go read(bufio.NewReaderSize(in, 1<<20), lines)
	var d device
	for r := range lines {
		text, err := d.do(r)
		switch {
		case r.line[0] == "map" || r.line[0] == "unmap":
			if err != nil {
				return err
			}
			continue
		case err != nil:
			text = "no " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		if _, err := fmt.Fprintln(out, text); err != nil {
			return err
		}
	}
	return nil
}

type request struct {
	line []string
	text string // of a module
}

// read reads requests while kernels run, so that the program ends with its parent even in the middle of one.
func read(in *bufio.Reader, to chan<- request) {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			os.Exit(0)
		}
		r := request{line: strings.Fields(line)}
		if r.line[0] == "module" {
			var n int
			fmt.Sscan(r.line[1], &n)
			text := make([]byte, n)
			if _, err := io.ReadFull(in, text); err != nil {
				os.Exit(0)
			}
			r.text = string(text)
		}
		to <- r
	}
}

func (d *device) do(r request) (string, error) {
	var address, bytes uint64
	var fd int
	rest := strings.Join(r.line[1:], " ")
	switch r.line[0] {
	case "map":
		if _, err := fmt.Sscan(rest, &address, &bytes, &fd); err != nil {
			return "", err
		}
		return "", d.add(address, bytes, fd)
	case "unmap":
		if _, err := fmt.Sscan(rest, &address); err != nil {
			return "", err
		}
		return "", d.remove(address)
	case "module":
		return "ok", d.load(r.text)
	case "function":
		m, err := d.module(r.line[1:])
		if err == nil && m.kernels[r.line[2]] == nil {
			err = fmt.Errorf("no kernel %s", r.line[2])
		}
		return "ok", err
	case "launch":
		return "ok", d.launch(r.line[1:])
	}
	return "", fmt.Errorf("expected a request; found %q", r.line[0])
}

func (d *device) module(args []string) (*module, error) {
	var n int
	if len(args) < 2 {
		return nil, errors.New("expected a module and a kernel")
	}
	if _, err := fmt.Sscan(args[0], &n); err != nil || n < 0 || n >= len(d.modules) {
		return nil, fmt.Errorf("expected a module; found %s", args[0])
	}
	return d.modules[n], nil
}

// add maps memory of the parent. Memory that the parent has freed in the meantime is not there any longer: no
// request that follows can be about it.
func (d *device) add(address, bytes uint64, fd int) error {
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", os.Getppid(), fd), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := syscall.Mmap(int(f.Fd()), 0, int(bytes), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping the parent's memory: %w", err)
	}
	b := &interp.Buffer{Name: fmt.Sprintf("%#x", address), Address: address, Data: data}
	d.mapped = append(d.mapped, b)
	for _, m := range d.modules {
		if err := m.memory.Add(b); err != nil {
			return err
		}
	}
	return nil
}

func (d *device) remove(address uint64) error {
	without := func(all []*interp.Buffer) (kept []*interp.Buffer) {
		for _, b := range all {
			if b.Address != address {
				kept = append(kept, b)
			}
		}
		return kept
	}
	for _, b := range d.mapped {
		if b.Address == address {
			defer syscall.Munmap(b.Data)
		}
	}
	d.mapped = without(d.mapped)
	for _, m := range d.modules {
		m.memory.Buffers = without(m.memory.Buffers)
	}
	return nil
}

func (d *device) load(text string) error {
	parsed, err := ptx.Parse(text)
	if err != nil {
		return err
	}
	m := &module{kernels: map[string]*ptx.Function{}}
	for _, b := range d.mapped {
		if err := m.memory.Add(b); err != nil {
			return err
		}
	}
	if m.program, err = interp.Load(parsed, &m.memory); err != nil {
		return err
	}
	for i := range parsed.Nodes {
		if n := &parsed.Nodes[i]; n.Kind == ptx.Define && n.Block != nil && n.Func.Entry {
			m.kernels[n.Func.Name] = n.Func
		}
	}
	d.modules = append(d.modules, m)
	return nil
}

func (d *device) launch(args []string) error {
	m, err := d.module(args)
	if err != nil {
		return err
	}
	l := interp.Launch{Kernel: args[1]}
	digits := ""
	if _, err := fmt.Sscan(strings.Join(args[2:], " "), &l.Grid[0], &l.Grid[1], &l.Grid[2], &l.Block[0], &l.Block[1], &l.Block[2], &l.Shared); err != nil {
		return fmt.Errorf("expected a launch: %w", err)
	}
	if len(args) > 9 {
		digits = args[9]
	}
	if m.kernels[l.Kernel] == nil {
		return fmt.Errorf("no kernel %s", l.Kernel)
	}
	packed, err := hex.DecodeString(digits)
	if err != nil {
		return fmt.Errorf("expected arguments: %w", err)
	}
	for _, p := range m.kernels[l.Kernel].Places() {
		if p.At+p.Bytes > len(packed) {
			return fmt.Errorf("%s: expected %d bytes of arguments at least; found %d", l.Kernel, p.At+p.Bytes, len(packed))
		}
		l.Args = append(l.Args, packed[p.At:p.At+p.Bytes])
	}
	_, err = m.program.Run(l, nil)
	return err
}
