package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/core"
	"github.com/muster-sched/muster/core/policy"
	"github.com/muster-sched/muster/workload"
)

// builtin finds a built-in policy.
func builtin(name string) (core.Policy, bool) {
	doc, ok := policy.ByName(name)
	return doc.Policy, ok
}

func policyNames() []string {
	var names []string
	for _, doc := range policy.All {
		names = append(names, doc.Name)
	}
	return names
}

// policyList describes the built-in policies, for help texts.
func policyList() string {
	var b strings.Builder
	for _, doc := range policy.All {
		b.WriteString("\n  " + pad(doc.Name, 16) + doc.Title)
	}
	return b.String()
}

func pad(s string, width int) string { return s + strings.Repeat(" ", max(1, width-len(s))) }

// loadPolicy returns the policy that arg names: a built-in, or a file.
func loadPolicy(c *cobra.Command, arg string) (core.Policy, error) {
	if p, ok := builtin(arg); ok {
		return p, nil
	}
	data, err := readFile(arg, 1<<20)
	if os.IsNotExist(err) {
		return core.Policy{}, badUsage(c, "--policy: expected a policy file, or one of %s; found %q%s",
			strings.Join(policyNames(), ", "), arg, didYouMean(arg, policyNames()))
	}
	if err != nil {
		return core.Policy{}, unreadable(arg, err)
	}
	return v1alpha1.Parse(arg, data, builtin)
}

// clusterPolicy returns the policy that arg names for a cluster: a file, or the
// object of that name, in place of which the built-in of that name counts while
// there is none. name is empty for a file.
func clusterPolicy(c *cobra.Command, arg string) (p core.Policy, name string, err error) {
	if p, ok := builtin(arg); ok {
		return p, arg, nil
	}
	if _, err := os.Stat(arg); os.IsNotExist(err) && len(validation.IsDNS1123Subdomain(arg)) == 0 && filepath.Ext(arg) == "" {
		return core.Policy{}, arg, nil
	}
	p, err = loadPolicy(c, arg)
	return p, "", err
}

// loadPolicies returns the policies of a list a,b,c, which may have those of
// known, by name. Their names are unique.
func loadPolicies(c *cobra.Command, args []string, known ...core.Policy) ([]core.Policy, error) {
	var all []core.Policy
	seen := map[string]bool{}
	for _, arg := range args {
		var p core.Policy
		var err error
		if i := slices.IndexFunc(known, func(k core.Policy) bool { return k.Name == arg }); i >= 0 {
			p = known[i]
		} else if p, err = loadPolicy(c, arg); err != nil {
			return nil, err
		}
		if seen[p.Name] {
			return nil, badUsage(c, "--policy: expected policies of different names; found %q again", p.Name)
		}
		seen[p.Name] = true
		all = append(all, p)
	}
	return all, nil
}

// completePolicy makes the shell offer the built-in policies.
func completePolicy(c *cobra.Command) { complete(c, "policy", policyNames) }

// readFile returns what is in a file of at most `most` bytes.
func readFile(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, most)
}

// readAll returns what is in r, at most `most` bytes.
func readAll(r io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("more than %d MiB", most>>20)
	}
	return data, err
}

// unreadable is the bad input of a file that cannot be read.
func unreadable(file string, err error) error {
	if path := (*os.PathError)(nil); errors.As(err, &path) {
		err = path.Err
	}
	return &workload.Error{File: file, Want: "a readable file; found: " + err.Error()}
}
