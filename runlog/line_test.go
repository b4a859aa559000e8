package runlog

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/sim"
)

func TestLine(t *testing.T) {
	p := &core.Placement{Pod: 3, Node: "n1", GPUs: 1<<0 | 1<<1 | 1<<63, GPU: 1000, CPUMilli: 8000, MemMiB: 32768}
	got := string(appendLine(nil, 12*core.Second+50*core.Second/1000, opRelease, "a/b", p, "preempted", sim.Eviction{For: "c", Told: 11 * core.Second}))
	want := `{"t":12.05,"op":"release","job":"a/b","pod":"a/b-3","node":"n1","gpus":[0,1,63],"milli":1000,` +
		`"cpu_milli":8000,"mem_mib":32768,"reason":"preempted","for":"c","told":11}` + "\n"
	if got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	got = string(appendLine(nil, 0, opBind, "j", &core.Placement{Node: "n"}, "Placed", sim.Eviction{}))
	want = `{"t":0,"op":"bind","job":"j","pod":"j-0","node":"n","gpus":[],"milli":0,` +
		`"cpu_milli":0,"mem_mib":0,"reason":"Placed"}` + "\n"
	if got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}

// Whatever a name holds, encoding/json must read it back.
func TestTextIsJSON(t *testing.T) {
	for _, s := range []string{"", "plain-1", `q"uo\te`, "tab\tnew\nline\x00\x1f", "ü→日", "del\x7f", "a\xffb", "  "} {
		var back string
		if err := json.Unmarshal(append(appendText([]byte{'"'}, s), '"'), &back); err != nil {
			t.Errorf("%q: %v", s, err)
		}
		if want := strings.ToValidUTF8(s, "\uFFFD"); back != want {
			t.Errorf("%q came back as %q", s, back)
		}
	}
}

func TestSeconds(t *testing.T) {
	for in, want := range map[core.Time]string{
		0: "0", 1: "0.000000001", core.Second: "1", core.Second * 3 / 2: "1.5", 1234567 * core.Second: "1234567",
		-core.Second / 4: "-0.25", core.Second + 10: "1.00000001",
	} {
		if got := string(appendSeconds(nil, in)); got != want {
			t.Errorf("%d ns = %s, want %s", int64(in), got, want)
		}
	}
}

// The hash is of the lines before compression, and does not depend on whether
// they are written.
func TestDecisionsHashWhatTheyWrite(t *testing.T) {
	var file bytes.Buffer
	written, hashed := NewDecisions(&file), NewDecisions(nil)
	p := &core.Placement{Node: "n", GPUs: 0xff, GPU: 1000}
	for i := range 20000 { // several chunks
		for _, d := range []*Decisions{written, hashed} {
			d.Bind(core.Time(i)*core.Second, fmt.Sprint("job", i), p, "Placed")
		}
	}
	sum, err := written.Close()
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(&file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if n := int64(bytes.Count(text, []byte("\n"))); n != 20000 || written.Lines() != n {
		t.Errorf("%d lines in the file, %d counted, want 20000", n, written.Lines())
	}
	digest := sha256.Sum256(text)
	if want := hex.EncodeToString(digest[:]); sum != want {
		t.Errorf("hash %s, of the file %s", sum, want)
	}
	if other, _ := hashed.Close(); other != sum {
		t.Errorf("hash without a file %s, with one %s", other, sum)
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestDecisionsReportWriteErrors(t *testing.T) {
	d := NewDecisions(fullDisk{})
	for range 50000 {
		d.Bind(0, "j", &core.Placement{Node: "n"}, "Placed")
	}
	if _, err := d.Close(); err == nil {
		t.Error("no error from a full disk")
	}
}

func BenchmarkLine(b *testing.B) {
	for name, out := range map[string]io.Writer{"hash": nil, "gzip": io.Discard} {
		b.Run(name, func(b *testing.B) {
			d := NewDecisions(out)
			p := &core.Placement{Node: "node-01234", GPUs: 0xff, GPU: 1000, CPUMilli: 96000, MemMiB: 1 << 20}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				p.Pod = i & 63
				d.Bind(core.Time(i)*core.Second/8, "training-0123456", p, "Placed")
			}
			d.Close()
		})
	}
}
