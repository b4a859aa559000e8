package deploy_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/muster-sched/muster/api/v1alpha1"
	"github.com/muster-sched/muster/deploy"
	"github.com/muster-sched/muster/kube/keys"
)

// quotedIn lists the quoted words of the list in the kustomize base that begins with a word.
func quotedIn(t *testing.T, first string) []string {
	t.Helper()
	data, err := os.ReadFile("kustomize/base/muster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return words(t, string(data), first)
}

func words(t *testing.T, text, first string) []string {
	t.Helper()
	_, rest, ok := strings.Cut(text, "['"+first+"'")
	list, _, closed := strings.Cut(rest, "]")
	if !ok || !closed {
		t.Fatalf("no list begins with %s", first)
	}
	out := []string{first}
	for _, m := range regexp.MustCompile(`'([^']+)'`).FindAllStringSubmatch(list, -1) {
		out = append(out, m[1])
	}
	slices.Sort(out)
	return out
}

// The policy for tenants holds what running pods say of their queue and their user, by whichever key.
func TestChargeKeys(t *testing.T) {
	want := slices.Concat(keys.Same(v1alpha1.QueueLabel), keys.Same(v1alpha1.UserAnnotation))
	for _, p := range keys.Peers {
		for _, k := range p.Keys { // those that say more than one thing
			if p.Name == "YuniKorn" && slices.Contains([]string{"queue", "applicationId", "yunikorn.apache.org/app-id", "yunikorn.apache.org/user.info"}, k.Name) {
				want = append(want, k.Name)
			}
		}
	}
	slices.Sort(want)
	if got := quotedIn(t, v1alpha1.QueueLabel); !slices.Equal(got, want) || len(got) < 14 {
		t.Errorf("the policy has\n%q; the code reads\n%q", got, want)
	}
}

// To the policy for tenants the same resources are GPUs as to the scheduler.
func TestGPUResources(t *testing.T) {
	i := slices.IndexFunc(deploy.CRDs(), func(c deploy.CRD) bool { return c.Name == "queues.muster.sh" })
	want := slices.DeleteFunc(words(t, strings.ReplaceAll(string(deploy.CRDs()[i].YAML), "''", "'"), "pods"), func(s string) bool { return s == "pods" })
	got := quotedIn(t, v1alpha1.GPUResource)
	if !slices.Equal(got, want) {
		t.Errorf("the policy has\n%q; of queues these are GPUs\n%q", got, want)
	}
	for _, name := range got {
		if !v1alpha1.IsGPUResource(name) {
			t.Errorf("to the scheduler %s is no GPU", name)
		}
	}
}
