// Command kaicases replays the cases of KAI-Scheduler's own tests through muster decide, and says where the two
// agree. A case is a table of Go: nodes, queues, jobs, and which jobs run in the end. Nothing of KAI is in this
// repository, so give it a folder with KAI's tests, for example pkg/scheduler/actions/integration_tests of a checkout:
//
//	make build
//	go run -C tools ./kaicases -muster ../bin/muster ~/KAI-Scheduler/pkg/scheduler/actions/integration_tests
//
// It prints a line for each case that comes out differently, and the sums. Each case is
//
//	exact       the same jobs run, on the nodes that the case names
//	equivalent  as many pods of each kind of job run: on another node, or another job that is the same but for its name and age
//	better      every pod that the case expects runs, and more; or more GPUs are in use, no queue has less than the case gives
//	            it of what it owns, and no job that must not be evicted was
//	differs     anything else: what has not come to rest after the last round, a snapshot that muster refuses
//	outside     the case needs what a snapshot cannot say, such as MIG; the line says what
//
// With -keep DIR the snapshots stay there. With -v there is a line for every case.
//
// How a case becomes a snapshot is said in convert.go. KAI's tests of single actions run that action alone. Muster
// always does all that its policy says; so compare with the integration tests, which run all actions.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// decide has muster decide on the snapshot in a file.
type decide func(file string) (answer, error)

// answer is what muster decide --json prints.
type answer struct {
	Rounds []struct {
		Decisions []decision `json:"decisions"`
	} `json:"rounds"`
}

type decision struct {
	Op   string `json:"op"`
	Job  string `json:"job"`
	Pod  string `json:"pod"`
	Node string `json:"node"`
}

func main() {
	muster := flag.String("muster", "muster", "the binary")
	policy := flag.String("policy", "", "a built-in policy or a file; the default one")
	rounds := flag.Int("rounds", 8, "the number of scheduling passes")
	keep := flag.String("keep", "", "a folder that keeps the snapshots")
	verbose := flag.Bool("v", false, "print every case")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: kaicases [flags] DIR")
		os.Exit(2)
	}
	d := func(file string) (answer, error) { return ask(*muster, *policy, *rounds, file) }
	if err := run(os.Stdout, flag.Arg(0), *keep, *verbose, d); err != nil {
		fmt.Fprintf(os.Stderr, "kaicases: %v\n", err)
		os.Exit(1)
	}
}

func ask(muster, policy string, rounds int, file string) (answer, error) {
	args := []string{"decide", "--json", "--rounds", strconv.Itoa(rounds), "--snapshot", file}
	if policy != "" {
		args = append(args, "--policy", policy)
	}
	cmd := exec.Command(muster, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return answer{}, fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	var a answer
	return a, json.Unmarshal(out, &a)
}

// run replays the cases under dir, and prints what comes out.
func run(w io.Writer, dir, keep string, verbose bool, d decide) error {
	cases, err := readCases(dir)
	if err != nil {
		return err
	}
	if keep == "" {
		if keep, err = os.MkdirTemp("", "kaicases"); err != nil {
			return err
		}
		defer os.RemoveAll(keep)
	}
	count := map[verdict]int{}
	for i := range cases {
		f := &cases[i]
		v, why, err := replay(f, filepath.Join(keep, fmt.Sprintf("%03d.json", i)), d)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", f.file, f.line, err)
		}
		count[v]++
		if verbose || v == differs {
			fmt.Fprintf(w, "%03d %-10s %s:%d %s\n", i, v, f.file, f.line, f.name)
			for _, line := range why {
				fmt.Fprintf(w, "               %s\n", line)
			}
		}
	}
	applies := len(cases) - count[outside]
	agrees := applies - count[differs]
	for _, v := range []verdict{exact, equivalent, better, differs, outside} {
		fmt.Fprintf(w, "%-10s %d\n", v, count[v])
	}
	_, err = fmt.Fprintf(w, "%d of %d cases that apply agree: %.1f %%\n", agrees, applies, 100*float64(agrees)/float64(max(1, applies)))
	return err
}

// replay converts one case, has it decided, and compares.
func replay(f *found, file string, d decide) (verdict, []string, error) {
	c, err := convert(f)
	if err != nil {
		return outside, []string{err.Error()}, nil
	}
	data, err := json.MarshalIndent(c.snapshot, "", " ")
	if err != nil {
		return "", nil, err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", nil, err
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		return "", nil, err
	}
	a, err := d(file)
	if err != nil {
		return differs, []string{err.Error()}, nil
	}
	v, why := c.compare(&a)
	return v, why, nil
}
