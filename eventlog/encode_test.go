package eventlog

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/cluster"
	"github.com/muster-sched/muster/core/place"
	"github.com/muster-sched/muster/core/quota"
)

// fill sets everything below v to what is not zero and differs.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(*n%100 + 1))
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Uint, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Float64:
		v.SetFloat(1 / float64(*n))
	case reflect.String:
		v.SetString("tëxt \"<&>\\\n" + strings.Repeat("x", *n%7))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(key, n)
			fill(value, n)
			v.SetMapIndex(key, value)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	default:
		panic(v.Type().String())
	}
}

// back is what becomes of a line.
func back(t *testing.T, line []byte) Entry {
	t.Helper()
	if n := len(line); n == 0 || line[n-1] != '\n' || slices.Contains(line[:n-1], '\n') {
		t.Fatalf("%q is no line", line)
	}
	e, err := parse(line[:len(line)-1])
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return e
}

// Each field of each event comes back as it was, whether it is set or not.
func TestEventsComeBack(t *testing.T) {
	of := reflect.TypeFor[events]()
	for i := range of.NumField() {
		for _, filled := range []bool{true, false} {
			v := reflect.New(of.Field(i).Type.Elem()).Elem()
			n := i
			if filled {
				fill(v, &n)
			}
			want := v.Interface().(core.Event)
			e := back(t, appendEvent(nil, 12, want))
			if !reflect.DeepEqual(e.Event, want) || e.Now != 12 {
				t.Errorf("%+v comes back as %+v", want, e)
			}
		}
	}
}

// Early logs say of a job what now its tasks say.
func TestLabelsOfJobs(t *testing.T) {
	terms := []core.Term{{Level: "node", Label: "x", Anti: true}}
	e := back(t, []byte(`{"t":1,"JobSubmitted":{"job":{"name":"j","tasks":[{"name":"a","gpu":1},{"name":"b"}],"labels":["x"],"affinity":[{"level":"node","label":"x","anti":true}]}}}`+"\n"))
	want := core.JobSubmitted{Job: core.Job{Name: "j", Tasks: []core.Task{
		{Name: "a", Request: core.Request{GPU: 1}, Labels: []string{"x"}, Affinity: terms}, {Name: "b", Labels: []string{"x"}, Affinity: terms},
	}}}
	if !reflect.DeepEqual(e.Event, want) {
		t.Errorf("got %+v", e.Event)
	}
}

// What is empty is not what is not there: PodsGone without Pods means all.
func TestEmptyIsNotNil(t *testing.T) {
	for _, want := range []core.Event{core.PodsGone{Job: "j"}, core.PodsGone{Job: "j", Pods: []int{}}} {
		if e := back(t, appendEvent(nil, 1, want)); !reflect.DeepEqual(e.Event, want) {
			t.Errorf("%#v comes back as %#v", want, e.Event)
		}
	}
}

func TestHeadersAndPassesComeBack(t *testing.T) {
	h, n := Header{}, 0
	fill(reflect.ValueOf(&h).Elem(), &n)
	h.Version = Version
	if e := back(t, appendHeader(nil, 1, &h)); !reflect.DeepEqual(*e.Begin, h) {
		t.Errorf("%+v comes back as %+v", h, *e.Begin)
	}
	ds := make([]core.Decision, 3)
	fill(reflect.ValueOf(&ds[1]).Elem(), &n)
	for op := core.Bind; op <= core.Migrate; op++ {
		ds = append(ds, core.Decision{Op: op, Reason: core.Victims})
	}
	if e := back(t, appendPass(nil, 1, ds)); !e.Pass || !reflect.DeepEqual(e.Decided, ds) {
		t.Errorf("%+v comes back as %+v", ds, e.Decided)
	}
	if e := back(t, appendPass(nil, 1, nil)); !e.Pass || e.Decided != nil {
		t.Errorf("an empty pass comes back as %+v", e)
	}
}

// A log can have every event that an engine takes.
func TestAllEvents(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../core/event.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != "event" {
			continue
		}
		found++
		name := f.Recv.List[0].Type.(*ast.Ident).Name
		if _, ok := reflect.TypeFor[events]().FieldByName(name); !ok {
			t.Errorf("no field of events for core.%s", name)
		}
	}
	if found < 16 {
		t.Errorf("%d events in core, want at least 16", found)
	}
}

// Files hold these as numbers: when one changes, so must Version.
func TestNumbers(t *testing.T) {
	got := []int{
		int(core.Training), int(core.Inference), int(core.Batch), int(core.Dev), int(core.HP), int(core.LP),
		int(core.StrictFIFO), int(core.BestEffortFIFO), int(core.Backfill), int(core.ByPriority), int(core.ByEstimate), int(core.BySubmission),
		int(cluster.In), int(cluster.NotIn), int(cluster.Exists), int(cluster.DoesNotExist), int(cluster.Gt), int(cluster.Lt), int(quota.Isolated),
		int(core.Stays), int(core.Replaceable), int(core.LeastWork), int(core.LeastWorkPerGPU), int(core.RandomVictims),
		int(core.Fastest), int(core.LeastWanted),
	}
	want := []int{0, 1, 2, 3, 0, 1, 0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 4, 5, 1, 0, 1, 0, 1, 2, 0, 1}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	names := strings.Join(place.Strategies[:13], " ")
	if names != "Binpack EBinpack Spread ESpread Consolidate Value FGD BestFit DotProduct GPUPacking GPUClustering Random Spot" {
		t.Errorf("strategies %s", names)
	}
}

func TestKeys(t *testing.T) {
	for name, want := range map[string]string{
		"GPUs": "gpus", "GPU": "gpu", "CPUMilli": "cpuMilli", "MemMiB": "memMiB", "HBD": "hbd", "NICs": "nics", "NUMA": "numa",
		"MinPods": "minPods", "Name": "name", "T": "t", "NotPreemptible": "notPreemptible",
	} {
		if got := key(name); got != want {
			t.Errorf("key(%q) = %q, want %q", name, got, want)
		}
	}
}

// What is wrong is said with the field as it is spelt.
func TestWrongLines(t *testing.T) {
	for line, want := range map[string]string{
		`{"t":1,"JobSubmitted":{"job":{"tasks":[{"gpu":"x"}]}}}`: "JobSubmitted.job.tasks.gpu: a value of type cluster.Milli, found a string",
		`{"t":"1","Tick":{}}`:                                       "t: a value of type cluster.Time, found a string",
		`{"t":1,"JobEnded":{"jop":"x"}}`:                            `a line of version 1, found the unknown field "jop"`,
		`{"Tick":{}}`:                                               "t: the time in nanoseconds, found nothing",
		`{"t":1}`:                                                   "one of begin, pass and an event together with t, found 0 of them",
		`{"t":1,"Tick":{},"pass":[]}`:                               "one of begin, pass and an event together with t, found 2 of them",
		`{"t":1,"Tick":{}} {}`:                                      "one JSON object a line, found more",
		`{"t":1,"pass":[{"op":"bend"}]}`:                            `pass.op: a decision, found "bend"`,
		`{"t":1,"pass":[{"op":"bind","reason":"Luck"}]}`:            `pass.reason: a reason, found "Luck"`,
		`{"t":1,"begin":{"version":1}}`:                             "begin.part: a number of at least 1, and a snapshot of at least 0 lines; found 0 and 0",
		`{"t":1,"begin":{"version":1,"part":1,"levels":["a","a"]}}`: `begin.levels: topology level "a": names must differ, not begin with "label=", and be neither empty, "node" nor "hbd"`,
		`{"t":1,"begin":{"version":1,"part":1,"policy":{"placement":[99,0,0,0]}}}`: "begin.policy.placement: numbers below 14, found 99",
	} {
		_, err := parse([]byte(line))
		if err == nil {
			t.Errorf("%s is taken", line)
			continue
		}
		if got := strings.TrimPrefix(err.Error(), ": "); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// Whatever is a line is one again when it is written, and whatever is none is
// told in one line.
func FuzzLine(f *testing.F) {
	of := reflect.TypeFor[events]()
	for i := range of.NumField() {
		v := reflect.New(of.Field(i).Type.Elem()).Elem()
		fill(v, &i)
		f.Add(appendEvent(nil, 1, v.Interface().(core.Event)))
	}
	f.Add(appendPass(nil, 1, []core.Decision{{Op: core.Bind, Job: "j", Pods: []core.Placement{{Node: "n"}}}}))
	f.Add(appendHeader(nil, 1, &Header{Version: Version, Part: 1, Levels: []string{"leaf"}}))
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := parse(text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: %q has several lines", text, err.Error())
			}
			return
		}
		var line []byte
		switch {
		case e.Begin != nil:
			line = appendHeader(nil, e.Now, e.Begin)
		case e.Pass:
			line = appendPass(nil, e.Now, e.Decided)
		default:
			line = appendEvent(nil, e.Now, e.Event)
		}
		if again := back(t, line); !reflect.DeepEqual(again, e) {
			t.Errorf("%s: %+v is %+v when it is written and read", text, e, again)
		}
	})
}
