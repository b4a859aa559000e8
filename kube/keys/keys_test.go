package keys

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/api/v1alpha1"
)

var update = flag.Bool("update", false, "write the tables into docs/migrate.md")

const page = "../../docs/migrate.md"

// Each key is there once, says what it must, and is in a domain of its scheduler or in none.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Peers {
		for _, k := range p.Keys {
			if seen[k.Name] {
				t.Errorf("%s is there twice", k.Name)
			}
			seen[k.Name] = true
			if k.Means != "" && (k.Answer != Honoured || !slices.Contains(v1alpha1.Keys, k.Means)) {
				t.Errorf("%s means %s, which is no key of Muster's, or it is not honoured", k.Name, k.Means)
			}
			if k.Text == "" && k.Means == "" {
				t.Errorf("nothing says what becomes of %s", k.Name)
			}
			if len(k.Harmless) > 0 && k.Answer != Refused {
				t.Errorf("%s has harmless values and is not refused", k.Name)
			}
			if of := PeerOf(k.Name); of != nil && of.Name != p.Name {
				t.Errorf("%s of %s is in the domain of %s", k.Name, p.Name, of.Name)
			}
			if Find(k.Name) == nil {
				t.Errorf("%s is not found", k.Name)
			}
		}
	}
	if len(seen) < 150 {
		t.Errorf("the table has %d keys", len(seen))
	}
}

func TestFind(t *testing.T) {
	for name, want := range map[string]string{
		"kai.scheduler/queue":                               "kai.scheduler/queue",
		"provreq.kueue.x-k8s.io/maxRunDurationSeconds":      "provreq.kueue.x-k8s.io/*",
		"quota.scheduling.koordinator.sh/tree-id":           "quota.scheduling.koordinator.sh/tree-id",
		"quota.scheduling.koordinator.sh/runtime":           "quota.scheduling.koordinator.sh/*",
		"scheduling.koordinator.sh/reservation-affinity":    "scheduling.koordinator.sh/reservation-affinity",
		"scheduling.koordinator.sh/reservation-order":       "scheduling.koordinator.sh/reservation-*",
		"kai.scheduler/queues":                              "",
		"runai-gpu-group/abc":                               "runai-gpu-group/*",
		"scheduling.koordinator.sh/reservation-affinity-no": "scheduling.koordinator.sh/reservation-*",
	} {
		got := ""
		if k := Find(name); k != nil {
			got = k.Name
		}
		if got != want {
			t.Errorf("%s is %q, expected %q", name, got, want)
		}
	}
	if got := Same(v1alpha1.PoolLabel); !slices.Equal(got, []string{v1alpha1.PoolLabel, "kai.scheduler/node-pool", "runai/node-pool"}) {
		t.Errorf("the pool is said by %v", got)
	}
}

func object(keys ...string) *metav1.ObjectMeta {
	o := &metav1.ObjectMeta{Labels: map[string]string{}, Annotations: map[string]string{}}
	for i, k := range keys {
		name, value, _ := strings.Cut(k, "=")
		if i%2 == 0 {
			o.Labels[name] = value
		} else {
			o.Annotations[name] = value
		}
	}
	return o
}

// A key in a domain of the table that is not in it is told, in every domain; others are not.
func TestUnknown(t *testing.T) {
	for _, c := range []struct {
		keys []string
		want string
	}{
		{[]string{"app", "example.com/kai.scheduler", "notkai.scheduler/queue", "devcluster.muster.sh/x"}, ""},
		{[]string{"kai.scheduler/queues"}, "kai.scheduler/queues is unknown; did you mean kai.scheduler/queue?"},
		{[]string{"app", "kueue.x-k8s.io/podset-required-topolgy"}, "kueue.x-k8s.io/podset-required-topolgy is unknown; did you mean kueue.x-k8s.io/podset-required-topology?"},
		{[]string{"gang.scheduling.koordinator.sh/min-availabel"}, "gang.scheduling.koordinator.sh/min-availabel is unknown; did you mean gang.scheduling.koordinator.sh/min-available?"},
		{[]string{"new.kueue.x-k8s.io/x", "volcano.sh/zzzzzz"}, "new.kueue.x-k8s.io/x is unknown; volcano.sh/zzzzzz is unknown"},
		{[]string{"muster.sh/que", "muster.sh/que"}, "muster.sh/que is unknown; did you mean muster.sh/queue?"},
		{[]string{"muster.sh/Queue", "volcano.sh/queue-nam"}, "muster.sh/Queue is unknown; did you mean muster.sh/queue? volcano.sh/queue-nam is unknown; did you mean volcano.sh/queue-name?"},
	} {
		if got := Unknown(object(c.keys...)); got != c.want {
			t.Errorf("%q: %q, expected %q", c.keys, got, c.want)
		}
	}
	for _, p := range Peers {
		for _, d := range p.Domains {
			if name := d + "/nobody-knows-this"; Find(name) == nil && !strings.HasPrefix(Unknown(object(name)), name+" is unknown") {
				t.Errorf("%s is not told", name)
			}
		}
	}
}

func TestRefusal(t *testing.T) {
	for keys, want := range map[string]string{
		"mps=true":  `mps: "true" is not supported: start MPS`,
		"mps=false": "",
		"app=x":     "",
		"volcano.sh/jdb-min-available=1 kueue.x-k8s.io/priority-boost=5": `kueue.x-k8s.io/priority-boost: "5" is not supported: name a PriorityClass`,
	} {
		err := Refusal(object(strings.Fields(keys)...))
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%s: %v, expected %q", keys, err, want)
		}
	}
}

// table writes the keys of a scheduler as the page has them.
func table(p *Peer) string {
	var out strings.Builder
	out.WriteString("| key | here |\n|---|---|\n")
	for _, k := range p.Keys {
		var here []string
		switch k.Answer {
		case Honoured:
			here = append(here, "honoured")
			if k.Means != "" {
				here[0] = "`" + k.Means + "`"
			}
		case Irrelevant:
			here = append(here, "irrelevant")
		case Refused:
			here = append(here, "**refused**")
			if len(k.Harmless) > 0 {
				var values []string
				for _, v := range k.Harmless {
					values = append(values, fmt.Sprintf("`%q`", v))
				}
				here[0] += ", but for " + strings.Join(values, ", ")
			}
		}
		if k.Text != "" {
			here = append(here, k.Text)
		}
		fmt.Fprintf(&out, "| `%s` | %s |\n", k.Name, strings.Join(here, ": "))
	}
	return out.String()
}

// The tables on the page are those of the code.
func TestPage(t *testing.T) {
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for i := range Peers {
		begin, end := "<!-- keys of "+Peers[i].Name+" -->\n", "<!-- end -->"
		before, rest, ok := strings.Cut(text, begin)
		_, after, ended := strings.Cut(rest, end)
		if !ok || !ended {
			t.Errorf("%s has no place for the keys of %s: expected the lines %s and %s", page, Peers[i].Name, strings.TrimSpace(begin), end)
			continue
		}
		text = before + begin + table(&Peers[i]) + end + after
	}
	switch {
	case text == string(data):
	case *update:
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s does not have the tables of this package: run go test ./kube/keys -update", page)
	}
}
