package shell

import (
	"strings"
	"testing"
)

// A branch is read if its condition may hold.
func TestBranches(t *testing.T) {
	for _, c := range []struct {
		name, source, want string
		params, env        []string
	}{
		{name: "a comparison that holds", source: "N=2\nif [ $N -gt 1 ]; then\n A=many\nelse\n A=one\nfi\nrun $A", want: "run many"},
		{name: "one that does not", source: "N=1\nif [ $N -gt 1 ]; then\n A=many; no\nelif [ $N -eq 1 ]; then\n A=one\nelse\n A=none; no\nfi\nrun $A", want: "run one"},
		{name: "one that is not known", source: "A=x\nif [ $N -gt 1 ]; then\n A=many\nelse\n A=one\nfi\nrun $A", want: "run many"},
		{name: "stages", source: "stage=4\nstop=5\nif [ $stage -le 3 ] && [ $stop -ge 3 ]; then\n prepare\nfi\nif [ ${stage} -le 4 ] && [ ${stop} -ge 4 ]; then\n train\nfi\nif [ $stage -le 6 ] && [ $stop -ge 6 ]; then\n test_it\nfi", want: "train"},
		{name: "either", source: "A=1\nif [ $A = 2 ] || [[ $A == 1 ]]; then yes; fi\nif ! true; then no; fi\nif [ -z \"$A\" ] || $unknown; then maybe; fi", want: "yes maybe"},
		{name: "branches in branches", source: "A=1\nif [ $A = 2 ]; then\n if [ $x ]; then no; else no; fi\n no\nfi\nif [ $x ]; then\n if [ $A = 1 ]; then yes; fi\nfi\nlast", want: "yes last"},
		{name: "options of Kaldi", source: "stage=1\nmax_epochs=2\n. utils/parse_options.sh || exit 1;\nrun $stage $max_epochs $1", params: []string{"--stage", "3", "--max-epochs=7", "rest"}, want: "run 3 7 rest"},
		{name: "the environment", source: "N=${N:-8}\nM=2\nrun $N $M", env: []string{"N=4", "M=9"}, want: "run 4 2"},
		{name: "an array that is declared, whose words have spaces", source: "declare -a data=(\n \"/a\"\n \"/b\"\n)\nmore=(\"--x 1\" --y)\nrun ${data[@]} ${more[@]} z", want: "run /a /b --x 1 --y z"},
	} {
		s := ParseCall([]byte(c.source), Call{Params: c.params, Env: c.env})
		var got []string
		for _, cmd := range s.Commands {
			if w := cmd.Words[0]; w != "[" && w != "[[" && w != "." && w != "exit" && !strings.HasPrefix(w, "$") && w != "true" {
				got = append(got, cmd.Words...)
			}
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
