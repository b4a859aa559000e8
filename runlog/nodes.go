package runlog

import (
	"bufio"
	"io"
	"strconv"

	"github.com/muster-sched/muster/core"
)

// nodesHeader names the columns of nodes.csv: a row whenever a node was lost, came back
// or changed, and for every node that was not fully usable at first. after is the number
// of lines of decisions.jsonl.gz before the change; unhealthy lists devices, separated by
// |.
const nodesHeader = "t,node,up,cordoned,unhealthy,after\n"

// nodeTable writes nodes.csv.
type nodeTable struct {
	out  *bufio.Writer // nil as long as there is no row
	seen map[string]bool
}

// tells reports whether the state of n, present or lost, needs a row.
func (t *nodeTable) tells(n *core.Node, up bool) bool {
	first := !t.seen[n.Name]
	t.seen[n.Name] = true
	return !first || !up || n.Cordoned || len(n.Unhealthy) > 0
}

func (t *nodeTable) begin(w io.Writer) {
	t.out = bufio.NewWriter(w)
	t.out.WriteString(nodesHeader)
}

func (t *nodeTable) add(at core.Time, n *core.Node, up bool, after int64) error {
	b := appendSeconds(nil, at)
	b = appendField(append(b, ','), n.Name)
	b = strconv.AppendBool(append(b, ','), up)
	b = strconv.AppendBool(append(b, ','), n.Cordoned)
	b = append(b, ',')
	for i, g := range n.Unhealthy {
		if i > 0 {
			b = append(b, '|')
		}
		b = strconv.AppendInt(b, int64(g), 10)
	}
	b = strconv.AppendInt(append(b, ','), after, 10)
	_, err := t.out.Write(append(b, '\n'))
	return err
}

func (t *nodeTable) flush() error {
	if t.out == nil {
		return nil
	}
	return t.out.Flush()
}
