package worker

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/muster-sched/muster/disagg/analyze"
)

// random makes a trace of two buffers: nodes that read and write bytes, some of them only in part, in iterations.
func random(r *rand.Rand) *analyze.Replay {
	all := &analyze.Replay{Buffers: []analyze.Content{{Name: "m", Range: analyze.Range{From: 1000, To: 1064}}, {Name: "w", Range: analyze.Range{From: 2000, To: 2016}}}}
	for i := range 12 {
		s := analyze.Step{Name: fmt.Sprint(i), Iteration: i / 5}
		for range 1 + r.IntN(3) {
			from := 1000 + r.Uint64N(64)
			x := analyze.Range{From: from, To: from + 1 + r.Uint64N(min(1064-from, 20))}
			kind := r.IntN(4)
			if kind < 2 || kind == 3 {
				s.Reads = append(s.Reads, x)
			}
			if kind >= 2 {
				s.Writes = append(s.Writes, x)
			}
		}
		s.Reads = append(s.Reads, analyze.Range{From: 2000, To: 2008})
		all.Steps = append(all.Steps, s)
	}
	return all
}

// apply computes what a step writes from what it reads. Of bytes that it also reads it leaves every other one as it was.
func apply(s *analyze.Step, memory []byte) {
	h := fnv.New64a()
	fmt.Fprint(h, s.Name)
	for _, r := range s.Reads {
		h.Write(memory[r.From:r.To])
	}
	v := h.Sum64()
	for _, w := range s.Writes {
		part := slices.Contains(s.Reads, w)
		for i := w.From; i < w.To; i++ {
			if !part || i%2 == 0 {
				memory[i] = byte(v>>(i%8*8)) + byte(i)
			}
		}
	}
}

// The operations of random traces under random plans that change with each iteration, in any order that streams and waits allow, leave in each byte's
// last place what one memory contains after the steps in order. Without the waits some do not.
func TestAnyOrderIsEqual(t *testing.T) {
	broken, moved, across := 0, 0, 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 3))
		trace := random(r)
		const gpus = 3
		plans := make([][]int, 3)
		for k := range plans {
			for range trace.Steps {
				plans[k] = append(plans[k], r.IntN(gpus))
			}
		}
		sites := []int{0, r.IntN(2), r.IntN(3)}
		p, err := NewProgram(trace, gpus)
		if err != nil {
			t.Fatal(err)
		}
		for _, gpu := range plans {
			p.Add(gpu)
		}
		one := make([]byte, 3000)
		for i := range one {
			one[i] = byte(i)
		}
		initial := slices.Clone(one)
		for i := range trace.Steps {
			apply(&trace.Steps[i], one)
		}
		run := func(waits bool) bool {
			memories := [gpus][]byte{}
			for g := range memories {
				memories[g] = make([]byte, 3000)
				copy(memories[g][2000:], initial[2000:])
			}
			state := p.first()
			for segment := range p.Segments {
				code := p.Compile(segment, state, plans[segment], sites)
				for _, o := range code.Ops {
					moved += len(o.Bytes)
					if o.Kind == Send {
						across++
					}
				}
				disorder(t, r, p, code, sites, waits, func(o *Op, host []byte) []byte { return carryOut(p, o, memories[:], initial, host) })
				state = code.after
			}
			for a, v := range state {
				at := p.atoms[a]
				if v.writer >= 0 && !slices.Equal(memories[v.home][at.From:at.To], one[at.From:at.To]) {
					return false
				}
			}
			return true
		}
		if !run(true) {
			t.Fatalf("seed %d: memory differs, plans %v", seed, plans)
		}
		if !run(false) {
			broken++
		}
	}
	if broken == 0 || moved == 0 || across == 0 {
		t.Errorf("%d runs without waits differ, %d transfers, %d between sites: the test shows nothing", broken, moved, across)
	}
}

// carryOut does what an operation does; host is what Send left.
func carryOut(p *Program, o *Op, memories [][]byte, initial, host []byte) []byte {
	switch o.Kind {
	case Execute:
		apply(&p.Steps[o.Step], memories[o.GPU])
	case Initialize:
		for _, r := range o.Bytes {
			copy(memories[o.GPU][r.From:r.To], initial[r.From:])
		}
	case Copy:
		for _, r := range o.Bytes {
			copy(memories[o.GPU][r.From:r.To], memories[o.From][r.From:])
		}
	case Send:
		for _, r := range o.Bytes {
			host = append(host, memories[o.From][r.From:r.To]...)
		}
	case Receive:
		for _, r := range o.Bytes {
			host = host[copy(memories[o.GPU][r.From:r.To], host):]
		}
	}
	return host
}

// disorder carries out operations in a random order: those of a stream keep theirs, and each waits for what it says.
func disorder(t *testing.T, r *rand.Rand, p *Program, code *Code, sites []int, waits bool, do func(o *Op, host []byte) []byte) {
	t.Helper()
	type place struct {
		stream
		site int
	}
	done := make([]bool, len(code.Ops))
	host := map[int][]byte{}
	for range code.Ops {
		var ready []int
		seen := map[place]bool{}
		for i := range code.Ops {
			o := &code.Ops[i]
			at := place{o.stream(), o.site(sites)}
			if done[i] || seen[at] {
				continue
			}
			seen[at] = true
			blocked := waits && slices.ContainsFunc(o.Waits, func(k int) bool { return !done[k] })
			if o.Kind == Receive {
				_, sent := host[o.Flag]
				blocked = blocked || !sent
			}
			for _, k := range o.Waits {
				if code.Ops[k].site(sites) != at.site || !code.Ops[k].Recorded {
					t.Fatalf("operation %d waits for %d, which is elsewhere or not recorded", i, k)
				}
			}
			if !blocked {
				ready = append(ready, i)
			}
		}
		if len(ready) == 0 {
			t.Fatal("all operations wait")
		}
		i := ready[r.IntN(len(ready))]
		done[i] = true
		o := &code.Ops[i]
		if left := do(o, host[o.Flag]); o.Kind == Send {
			host[o.Flag] = left
		}
	}
}

// Transfers are where a step reads what its GPU does not have: a second reader there, and an iteration after one that
// brought the bytes, need none.
func TestTransfers(t *testing.T) {
	at := func(from, to uint64) []analyze.Range { return []analyze.Range{{From: from, To: to}} }
	trace := &analyze.Replay{Buffers: []analyze.Content{{Name: "m", Range: analyze.Range{From: 1, To: 100}}}, Steps: []analyze.Step{
		{Name: "a", Writes: at(1, 40)},
		{Name: "b", Reads: at(1, 40), Writes: at(40, 60)},
		{Name: "c", Reads: at(20, 50), Writes: at(60, 100)},
		{Name: "d", Reads: at(60, 80)},
		{Name: "e", Iteration: 1, Reads: at(10, 50)},
		{Name: "f", Iteration: 1, Reads: at(50, 90)},
	}}
	p, err := NewProgram(trace, 2)
	if err != nil {
		t.Fatal(err)
	}
	gpu := []int{0, 1, 1, 0, 1, 0}
	p.Add(gpu)
	var got []string
	state := p.first()
	for segment := range p.Segments {
		code := p.Compile(segment, state, gpu, []int{0, 0})
		for _, o := range code.Ops {
			if o.Kind == Copy {
				got = append(got, fmt.Sprintf("%d: %s to %s, %d to %d, %v", segment, trace.Steps[o.Writer].Name, trace.Steps[o.Step].Name, o.From, o.GPU, o.Bytes))
			}
		}
		state = code.after
	}
	want := []string{"0: a to b, 0 to 1, [{1 40}]", "0: c to d, 1 to 0, [{60 80}]", "1: b to f, 1 to 0, [{50 60}]", "1: c to f, 1 to 0, [{80 90}]"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}
