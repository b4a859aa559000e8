package main

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// need is why the scheduler has permissions: the code, of a file below kube/, that uses them.
type need struct{ verbs, group, resources, file, code string }

// needs are all permissions of the scheduler but those on owners of pods, whose kinds the
// code lists.
var needs = []need{
	{"list watch", "", "pods", "watch.go", `start(core, "pods"`},
	{"list watch", "", "nodes", "watch.go", `start(core, "nodes"`},
	{"list watch", "", "namespaces", "watch.go", `start(core, "namespaces"`},
	{"list watch", "", "persistentvolumes", "watch.go", `start(core, "persistentvolumes"`},
	{"list watch", "", "persistentvolumeclaims", "watch.go", `start(core, "persistentvolumeclaims"`},
	{"list watch", "scheduling.k8s.io", "priorityclasses", "watch.go", `"priorityclasses"`},
	{"list watch", "scheduling.k8s.io", "podgroups", "watch.go", `"podgroups"`},
	{"list watch", "policy", "poddisruptionbudgets", "watch.go", `"poddisruptionbudgets"`},
	{"list watch", "storage.k8s.io", "storageclasses", "watch.go", `start(storageAPI, "storageclasses"`},
	{"list watch", "storage.k8s.io", "csinodes", "watch.go", `start(storageAPI, "csinodes"`},
	{"list watch", "resource.k8s.io", "resourceclaims", "watch.go", `start(dra, "resourceclaims"`},
	{"list watch", "resource.k8s.io", "resourceslices", "watch.go", `start(dra, "resourceslices"`},
	{"list watch", "resource.k8s.io", "deviceclasses", "watch.go", `start(dra, "deviceclasses"`},
	{"list watch", "resource.k8s.io", "devicetaintrules", "watch.go", `start(dra, "devicetaintrules"`},
	{"list watch", "muster.sh", "queues", "watch.go", `start(s.muster, "queues"`},
	{"list watch", "muster.sh", "schedulingpolicies", "watch.go", `start(s.muster, "schedulingpolicies"`},
	{"list watch", "muster.sh", "topologies", "watch.go", `start(s.muster, "topologies"`},
	{"list watch", "muster.sh", "ledgers", "watch.go", `start(s.muster, "ledgers"`},

	{"get", "", "pods", "act/bind.go", "Pods(b.Namespace).Get("},
	{"get", "", "nodes", "act/replicas.go", "Nodes().Get("},
	{"get", "apps", "replicasets", "act/replicas.go", "ReplicaSets(namespace).Get("},
	{"get", "apps", "deployments", "act/move.go", "Deployments(x.Namespace).Get("},
	{"get", "apps", "daemonsets statefulsets", "act/gang.go", "a.dynamic.Resource(resource).Namespace(group.Namespace).Get("}, // owners above a pod
	{"get", "batch", "cronjobs", "act/gang.go", "a.dynamic.Resource(resource).Namespace(group.Namespace).Get("},
	{"list watch", "apps", "replicasets deployments daemonsets statefulsets", "follow/follow.go", "of.Watch("}, // what owners say is followed
	{"list watch", "batch", "cronjobs", "follow/follow.go", "of.Watch("},
	{"get", "scheduling.k8s.io", "podgroups", "act/report.go", "groups.Get("},
	{"get", "resource.k8s.io", "resourceclaims", "act/claims.go", "claims.Get("},

	{"create", "", "pods/binding", "act/bind.go", ".Bind(ctx, binding"},
	{"create", "", "pods/eviction", "act/evict.go", ".Evict(ctx"},
	{"patch", "", "pods", "act/bind.go", "Pods(p.Namespace).Patch("},
	{"delete", "", "pods", "act/evict.go", "Pods(p.Namespace).Delete("},
	{"patch", "", "pods/resize", "pause/pods.go", `metav1.PatchOptions{}, "resize")`},
	{"patch", "", "pods/status", "act/evict.go", `metav1.PatchOptions{}, "status")`},
	{"patch", "scheduling.k8s.io", "podgroups/status", "act/report.go", `groups.Patch(ctx, x.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")`},
	{"create patch", "", "events", "act/act.go", "StartRecordingToSink"},
	{"patch", "", "persistentvolumeclaims", "act/volume.go", "PersistentVolumeClaims(x.Claim.Namespace).Patch("},
	{"create", "resource.k8s.io", "resourceclaims", "act/extended.go", "claims.Create("},
	{"update", "resource.k8s.io", "resourceclaims", "act/extended.go", "claims.Update("},
	{"delete", "resource.k8s.io", "resourceclaims", "act/extended.go", "claims.Delete("},
	{"patch", "resource.k8s.io", "resourceclaims resourceclaims/status resourceclaims/binding", "act/claims.go", "ResourceClaims(o.Namespace).Patch("},
	{"update", "resource.k8s.io", "resourceclaims/status resourceclaims/binding", "act/claims.go", "claims.UpdateStatus("},
	{"update", "muster.sh", "queues/status schedulingpolicies/status topologies/status", "act/status.go", `a.muster.Put().Resource(x.Resource).Name(x.Name).SubResource("status")`},
	{"create", "muster.sh", "ledgers", "act/ledger.go", "a.muster.Post()"},
	{"update", "muster.sh", "ledgers", "act/ledger.go", "a.muster.Put()"},
	{"delete", "muster.sh", "ledgers", "act/ledger.go", "a.muster.Delete()"},

	{"create", "authentication.k8s.io", "tokenreviews", "access/access.go", "client.AuthenticationV1()"},       // metrics.secure
	{"create", "authorization.k8s.io", "subjectaccessreviews", "access/access.go", "client.AuthorizationV1()"}, // metrics.secure

	{"get create update", "coordination.k8s.io", "leases", "lease/election.go", "resourcelock.LeaseLock{"},
	{"list", "coordination.k8s.io", "leases", "lease/members.go", "api.List("},
	{"patch", "coordination.k8s.io", "leases", "lease/members.go", "api.Patch("},
	{"delete", "coordination.k8s.io", "leases", "lease/members.go", "api.Delete("},

	{"patch", "", "nodes", "act/evictions.go", "Nodes().Patch("}, // rbac.evictionCounts, rbac.recovery
	{"get", "", "pods/log", "recovery/recovery.go", "GetLogs("},  // rbac.recovery
}

// owners are the kinds of owners that a file below kube/ lists, as resources with their
// groups.
func owners(t *testing.T, file string) (list [][2]string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`\{Group: "([a-z0-9.-]+)", Kind: "(\w+)"\}:(.*)`).FindAllStringSubmatch(source(t, file), -1) {
		if !strings.Contains(m[3], "{PodLabel:") { // which cannot be suspended
			list = append(list, [2]string{m[1], strings.ToLower(m[2]) + "s"})
		}
	}
	if len(list) == 0 {
		t.Fatalf("%s lists no kinds", file)
	}
	return list
}

func source(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile("../../kube/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The scheduler has the permissions that its code uses, and no others: a surplus verb, a
// verb that is lacking, and code that is gone all fail.
func TestLeastPrivilege(t *testing.T) {
	needed := map[string]string{}
	add := func(verbs, group, resources, why string) {
		for resource := range strings.FieldsSeq(resources) {
			for verb := range strings.FieldsSeq(verbs) {
				needed[verb+" "+resource+"."+group] = why
			}
		}
	}
	for _, n := range needs {
		if !strings.Contains(source(t, n.file), n.code) {
			t.Errorf("kube/%s no longer has %q: who needs to %s %s?", n.file, n.code, n.verbs, n.resources)
		}
		add(n.verbs, n.group, n.resources, n.file)
	}
	for _, o := range owners(t, "translate/suspend.go") {
		add("get list watch patch", o[0], o[1], "translate/suspend.go")
	}
	for _, o := range owners(t, "owners/gangs.go") {
		add("get list watch", o[0], o[1], "owners/gangs.go")
	}
	all := renderObjects(t, map[string]any{"rbac": map[string]any{"recovery": true, "evictionCounts": true}})
	granted := map[string]bool{}
	for _, list := range [][]rbacv1.PolicyRule{find[*rbacv1.ClusterRole](t, all, "muster-scheduler").Rules, find[*rbacv1.Role](t, all, "muster-scheduler").Rules} {
		for _, r := range list {
			if len(r.ResourceNames)+len(r.NonResourceURLs) > 0 {
				t.Errorf("%v: expected rules for resources of any name", r)
			}
			for _, g := range r.APIGroups {
				for _, x := range r.Resources {
					for _, v := range r.Verbs {
						granted[v+" "+x+"."+g] = true
					}
				}
			}
		}
	}
	for _, p := range slices.Sorted(maps.Keys(granted)) {
		if needed[p] == "" {
			t.Errorf("the chart grants %q, which no code uses", p)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(needed)) {
		if !granted[p] {
			t.Errorf("the chart does not grant %q, which kube/%s uses", p, needed[p])
		}
	}
}
