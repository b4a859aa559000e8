package slurm

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/muster-sched/muster/semantic/shell"
)

// ScriptLine is the options in a line of a script that starts with #SBATCH.
type ScriptLine struct {
	Line int
	Args []string
}

// ScriptOptions reads the options in the lines of a script that start with
// #SBATCH, up to its first command.
func ScriptOptions(script string) ([]ScriptLine, error) {
	var out []ScriptLine
	n := 0
	for line := range strings.SplitSeq(script, "\n") {
		n++
		line = strings.TrimSpace(line)
		if line != "" && line[0] != '#' {
			break
		}
		rest, ok := strings.CutPrefix(line, "#SBATCH")
		if !ok || rest != "" && rest[0] != ' ' && rest[0] != '\t' {
			continue
		}
		args, err := words(rest)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if len(args) > 0 {
			out = append(out, ScriptLine{n, args})
		}
	}
	return out, nil
}

// words splits a line as a shell does, as far as quotes and comments go.
func words(line string) ([]string, error) {
	var (
		out   []string
		word  strings.Builder
		quote rune
		begun bool
	)
	flush := func() {
		if begun {
			out = append(out, word.String())
		}
		word.Reset()
		begun = false
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '"' || r == '\'':
			quote, begun = r, true
		case r == ' ' || r == '\t':
			flush()
		case r == '#' && !begun:
			return out, nil
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("expected a closing %c", quote)
	}
	flush()
	return out, nil
}

// UnreachableError is a command of a script that would not do in a pod what it does with Slurm.
type UnreachableError struct {
	Line    int
	Problem string
}

func (e *UnreachableError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Problem) }

// outside are commands of Slurm that pods do not have, and what to do in their place.
var outside = map[string]string{
	"sbatch":   "a job cannot submit jobs: submit this one from outside, with --dependency=afterok:JOB if it comes after this one",
	"salloc":   "a job cannot submit jobs: submit this one from outside",
	"scancel":  "a script cannot cancel jobs: end it with exit",
	"squeue":   "pods know nothing about other jobs: use muster queue from outside",
	"sinfo":    "pods know nothing about other nodes: use muster nodes from outside",
	"sacct":    "pods know nothing about other jobs: use muster jobs from outside",
	"sstat":    "pods know nothing about other jobs: use muster top from outside",
	"sbcast":   "the pods of a job share no local disk: mount a volume, or have the image contain the file",
	"sattach":  "use kubectl logs on the pods",
	"strigger": "there are no triggers",
}

// option is an option of srun, as the srun in the pods knows it.
type option struct {
	Long     string `json:"long"`
	Short    string `json:"short"`
	Value    bool   `json:"value"`
	Optional bool   `json:"optional"`
	As       string `json:"as"`
	Instead  string `json:"instead"`
}

// srunOptions are read from the file that the pods have too.
var srunOptions = func() []option {
	var list []option
	if err := json.Unmarshal(podFile("options.json"), &list); err != nil {
		panic(err)
	}
	return list
}()

// CheckScript finds the first command of a shell script that cannot do in a pod what it does with Slurm: an
// [UnreachableError]. What only a run can tell is left to the srun in the pod.
func CheckScript(script string) error {
	if !isShell(script) {
		return nil
	}
	for _, c := range shell.Parse([]byte(script), ".").Commands {
		if err := checkCommand(c.Words, c.Line); err != nil {
			return err
		}
	}
	n := 0
	for line := range strings.SplitSeq(script, "\n") {
		n++
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for _, inner := range substitution.FindAllStringSubmatch(line, -1) {
			for _, c := range shell.Split(inner[1]) {
				if err := checkCommand(c.Words, n); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// substitution is a command of which the output is used.
var substitution = regexp.MustCompile("(?:\\$\\(|`)([^()`]*)")

// before are words that a command may follow.
var before = map[string]bool{"exec": true, "time": true, "nohup": true, "command": true, "!": true, "if": true, "then": true, "else": true, "do": true, "while": true, "until": true, "{": true}

func checkCommand(words []string, line int) error {
	for len(words) > 0 && before[words[0]] {
		words = words[1:]
	}
	if len(words) == 0 {
		return nil
	}
	name := path.Base(words[0])
	if instead, ok := outside[name]; ok {
		return &UnreachableError{line, name + ": " + instead}
	}
	switch {
	case name == "scontrol" && len(words) > 1 && !(words[1] == "show" && len(words) > 2 && strings.HasPrefix("hostnames", words[2]) && len(words[2]) > 3):
		return &UnreachableError{line, "scontrol " + words[1] + ": in the pods there is scontrol show hostnames alone: use kubectl and muster from outside"}
	case name == "srun":
		if problem := checkSrun(words[1:]); problem != "" {
			return &UnreachableError{line, "srun: " + problem}
		}
	}
	return nil
}

// checkSrun says which option of an srun cannot be done; empty for none that is known now.
func checkSrun(args []string) string {
	find := func(match func(*option) bool) *option {
		for i := range srunOptions {
			if match(&srunOptions[i]) {
				return &srunOptions[i]
			}
		}
		return nil
	}
	for len(args) > 0 {
		word := args[0]
		args = args[1:]
		if !strings.HasPrefix(word, "-") || word == "-" || word == "--" {
			return "" // the command, or what only a run can tell
		}
		name, value, hasValue := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		o := find(func(o *option) bool { return strings.HasPrefix(word, "--") && o.Long == name })
		for letters := word[1:]; !strings.HasPrefix(word, "--") && letters != ""; {
			letter := letters[:1]
			letters = letters[1:]
			if o = find(func(o *option) bool { return o.Short == letter }); o == nil {
				break
			}
			if name = "-" + letter; o.Value || o.Optional {
				value, hasValue, letters = letters, letters != "", ""
			}
		}
		switch {
		case o == nil && strings.Contains(word, "$"):
			return ""
		case o == nil:
			return fmt.Sprintf("option %s is not known here", word)
		case o.As == "refused":
			return fmt.Sprintf("--%s: %s", o.Long, o.Instead)
		}
		if o.Value && !hasValue && len(args) > 0 {
			value, args = args[0], args[1:]
		}
		if o.Long == "mpi" && value != "none" && value != "list" && !strings.Contains(value, "$") {
			return fmt.Sprintf("--mpi=%s: there is no PMI between pods: launch with torchrun, or use an MPIJob", value)
		}
	}
	return ""
}
