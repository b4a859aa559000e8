package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsinstall "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// definition judges objects of one kind as the API server does.
type definition struct {
	structural *structuralschema.Structural
	schema     validation.SchemaValidator
	rules      *schemacel.Validator
}

// definitions reads deploy/crds, by kind, and checks that the API server would
// take them.
func definitions(t *testing.T) map[string]*definition {
	t.Helper()
	scheme := runtime.NewScheme()
	apiextensionsinstall.Install(scheme)
	all := map[string]*definition{}
	for _, plural := range []string{"queues", "schedulingpolicies", "topologies", "ledgers"} {
		data, err := os.ReadFile(deployDir + "crds/muster.sh_" + plural + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		var v1 apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(data, &v1); err != nil {
			t.Fatal(err)
		}
		scheme.Default(&v1)
		var crd apiextensions.CustomResourceDefinition
		if err := scheme.Convert(&v1, &crd, nil); err != nil {
			t.Fatal(err)
		}
		// The API server sets this when it stores a definition.
		crd.Status.StoredVersions = []string{crd.Spec.Versions[0].Name}
		if errs := crdvalidation.ValidateCustomResourceDefinition(t.Context(), &crd); len(errs) > 0 {
			t.Fatalf("%s: %v", plural, errs.ToAggregate())
		}
		// With a single version, conversion puts its schema at the top.
		schema := crd.Spec.Validation
		if schema == nil {
			schema = crd.Spec.Versions[0].Schema
		}
		d := &definition{}
		if d.structural, err = structuralschema.NewStructural(schema.OpenAPIV3Schema); err != nil {
			t.Fatal(err)
		}
		if d.schema, _, err = validation.NewSchemaValidator(schema.OpenAPIV3Schema); err != nil {
			t.Fatal(err)
		}
		d.rules = schemacel.NewValidator(d.structural, true, celconfig.PerCallLimit)
		all[crd.Spec.Names.Kind] = d
	}
	return all
}

// admit fills in the defaults and returns the errors for a new object or, with
// an old one, for a change of it.
func (d *definition) admit(t *testing.T, o, old map[string]any) []string {
	t.Helper()
	if unknown := pruning.PruneWithOptions(o, d.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}); len(unknown) > 0 {
		t.Errorf("unknown fields %v", unknown)
	}
	defaulting.Default(o, d.structural)
	var errs field.ErrorList
	if old == nil {
		errs = validation.ValidateCustomResource(nil, o, d.schema)
	} else {
		errs = validation.ValidateCustomResourceUpdate(nil, o, old, d.schema)
	}
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, d.structural, o)...)
	var was any
	if old != nil {
		was = old
	}
	more, _ := d.rules.Validate(t.Context(), nil, d.structural, o, was, celconfig.RuntimeCELCostBudget)
	var texts []string
	for _, err := range append(errs, more...) {
		texts = append(texts, err.Error())
	}
	return texts
}

func parse(t *testing.T, kind, name, spec string) map[string]any {
	t.Helper()
	o := map[string]any{"apiVersion": "muster.sh/v1alpha1", "kind": kind, "metadata": map[string]any{"name": name}}
	var fields map[string]any
	// As the API server reads numbers: whole ones are int64.
	data, err := yaml.YAMLToJSON([]byte(spec))
	if err == nil {
		err = utiljson.Unmarshal(data, &fields)
	}
	if err != nil {
		t.Fatal(err)
	}
	o["spec"] = fields
	return o
}

func TestDefinitionsJudge(t *testing.T) {
	all := definitions(t)
	for _, test := range []struct{ kind, name, old, spec, want string }{
		{kind: "Queue", name: "a queue without anything", spec: `{}`},
		{kind: "Queue", name: "a queue with all", spec: `{parent: lab, weight: 3, mode: Shared, namespaceSelector: {matchLabels: {team: a}},
			quota: [{model: H800, nominal: 64, borrowingLimit: "8.5", lendingLimit: 0}, {model: "*", nominal: "0.25"}]}`},
		{kind: "Queue", name: "an isolated queue", spec: `{mode: Isolated, quota: [{model: H800, nominal: 8}]}`},
		{kind: "Queue", name: "an isolated queue that borrows", spec: `{mode: Isolated, quota: [{model: H800, nominal: 8, borrowingLimit: 1}]}`,
			want: "an Isolated queue neither borrows nor lends"},
		{kind: "Queue", name: "an isolated queue that lends", spec: `{mode: Isolated, quota: [{model: H800, nominal: 8, lendingLimit: 0}]}`,
			want: "an Isolated queue neither borrows nor lends"},
		{kind: "Queue", name: "two entries of a model", spec: `{quota: [{model: H800, nominal: 8}, {model: H800, nominal: 4}]}`, want: `spec.quota[1]: Duplicate value`},
		{kind: "Queue", name: "its own parent", spec: `{parent: object}`, want: "a queue is not its own parent"},
		{kind: "Queue", name: "resources", spec: `{resources: [{name: cpu, nominal: 512, borrowingLimit: "1.5k"}, {name: memory, nominal: 4Ti, lendingLimit: 0}, {name: rdma/hca, nominal: "16"}]}`},
		{kind: "Queue", name: "a resource twice", spec: `{resources: [{name: cpu, nominal: 1}, {name: cpu, nominal: 2}]}`, want: `spec.resources[1]: Duplicate value`},
		{kind: "Queue", name: "GPUs as a resource", spec: `{resources: [{name: nvidia.com/gpu, nominal: 8}]}`, want: "a resource other than GPUs and pods"},
		{kind: "Queue", name: "Ascend devices as a resource", spec: `{resources: [{name: huawei.com/Ascend910, nominal: 8}]}`, want: "a resource other than GPUs and pods"},
		{kind: "Queue", name: "an amount that is none", spec: `{resources: [{name: cpu, nominal: all}]}`, want: "spec.resources[0].nominal"},
		{kind: "Queue", name: "quota without limit, and that of a subtree", spec: `{quotaScope: Subtree, quota: [{model: "*", nominal: -1}], resources: [{name: cpu, nominal: "-1"}]}`},
		{kind: "Queue", name: "a negative amount", spec: `{resources: [{name: cpu, nominal: -2}]}`, want: "an amount is not negative"},
		{kind: "Queue", name: "a resource without an amount", spec: `{resources: [{name: cpu}]}`, want: "spec.resources[0].nominal"},
		{kind: "Queue", name: "an isolated queue that borrows CPU", spec: `{mode: Isolated, resources: [{name: cpu, nominal: 8, borrowingLimit: 1}]}`,
			want: "an Isolated queue neither borrows nor lends"},
		{kind: "Queue", name: "another mode", spec: `{mode: Open}`, want: `Unsupported value: "Open"`},
		{kind: "Queue", name: "no weight", spec: `{weight: 0}`},
		{kind: "Queue", name: "a weight below 0", spec: `{weight: -1}`, want: "spec.weight"},
		{kind: "Queue", name: "a negative quota", spec: `{quota: [{model: H800, nominal: -2}]}`, want: "a number of GPUs is 0 to 1000000000"},
		{kind: "Queue", name: "a negative quota in quotes", spec: `{quota: [{model: H800, nominal: "-2"}]}`, want: "spec.quota[0].nominal"},
		{kind: "Queue", name: "decimals without quotes", spec: `{quota: [{model: H800, nominal: 0.5}]}`, want: "spec.quota[0].nominal"},
		{kind: "Queue", name: "four decimals", spec: `{quota: [{model: H800, nominal: "0.0001"}]}`, want: "spec.quota[0].nominal"},
		{kind: "Queue", name: "a model like a resource", spec: `{quota: [{model: /cpu, nominal: 8}]}`, want: "spec.quota[0].model"},
		{kind: "Queue", name: "a quota without model", spec: `{quota: [{nominal: 8}]}`, want: "spec.quota[0].model"},
		{kind: "Queue", name: "an operator that is none", spec: `{namespaceSelector: {matchExpressions: [{key: a, operator: Is, values: [b]}]}}`, want: "an operator is"},
		{kind: "Queue", name: "In without values", spec: `{namespaceSelector: {matchExpressions: [{key: a, operator: In}]}}`, want: "an operator is"},
		{kind: "Queue", name: "Exists", spec: `{namespaceSelector: {matchExpressions: [{key: a, operator: Exists}]}}`},
		{kind: "Queue", name: "another parent", old: `{parent: a}`, spec: `{parent: b}`},

		{kind: "SchedulingPolicy", name: "the default", spec: `{}`},
		{kind: "SchedulingPolicy", name: "all of it", spec: `{base: Backfill, queueing: {mode: Backfill, order: Priority, headWait: 30m},
			placement: {default: EBinpack, inference: ESpread}, zone: {share: 0.1, exclusive: false},
			preemption: {priority: Queue, reclaim: true, backfill: true, minRuntime: 600, budget: 64, interval: 1h30m},
			fairness: {lease: 15m, halfLife: 30d, rates: [{model: H800, rate: 2}, {model: T4, rate: 0.5}]}, requeue: {backoff: 1.5s, maxBackoff: 7d, staleGrace: 60s}}`},
		{kind: "SchedulingPolicy", name: "the order of estimated GPU time", spec: `{queueing: {order: EstimatedGPUTime}}`},
		{kind: "SchedulingPolicy", name: "the order of long-term fairness", spec: `{queueing: {order: LongTermFairness}, fairness: {jobs: Submission}}`},
		{kind: "SchedulingPolicy", name: "another order of jobs", spec: `{fairness: {jobs: DominantShare}}`, want: "spec.fairness.jobs"},
		{kind: "SchedulingPolicy", name: "the order of dominant shares", spec: `{queueing: {order: DominantShare}}`},
		{kind: "SchedulingPolicy", name: "the order of attained GPU time", spec: `{queueing: {order: LeastAttained}, fairness: {lease: 1m, levels: [5h, 2d]}}`},
		{kind: "SchedulingPolicy", name: "the order of the Gittins index", spec: `{queueing: {order: GittinsIndex}, fairness: {levels: [5h], distribution: [1m, 1m, 4h]}}`},
		{kind: "SchedulingPolicy", name: "a level without a unit", spec: `{fairness: {levels: [5 hours]}}`, want: "spec.fairness.levels[0]"},
		{kind: "SchedulingPolicy", name: "too small a rate", spec: `{fairness: {rates: [{model: T4, rate: 0.0001}]}}`, want: "spec.fairness.rates[0].rate"},
		{kind: "SchedulingPolicy", name: "a rate twice", spec: `{fairness: {rates: [{model: T4, rate: 1}, {model: T4, rate: 2}]}}`, want: "spec.fairness.rates[1]"},
		{kind: "SchedulingPolicy", name: "another mode", spec: `{queueing: {mode: FIFO}}`, want: "spec.queueing.mode"},
		{kind: "SchedulingPolicy", name: "another strategy", spec: `{placement: {dev: Pack}}`, want: "spec.placement.dev"},
		{kind: "SchedulingPolicy", name: "label and share", spec: `{zone: {label: a, share: 0.5}}`, want: "a zone has a label or a share, not both"},
		{kind: "SchedulingPolicy", name: "value alone", spec: `{zone: {value: a}}`, want: "a value needs its label"},
		{kind: "SchedulingPolicy", name: "more than all", spec: `{zone: {share: 1.5}}`, want: "spec.zone.share"},
		{kind: "SchedulingPolicy", name: "a negative budget", spec: `{preemption: {budget: -1}}`, want: "spec.preemption.budget"},
		{kind: "SchedulingPolicy", name: "a negative grace period", spec: `{requeue: {staleGrace: -1s}}`, want: "spec.requeue.staleGrace"},
		{kind: "SchedulingPolicy", name: "an unknown unit", spec: `{requeue: {backoff: 5y}}`, want: "spec.requeue.backoff"},
		{kind: "SchedulingPolicy", name: "an empty duration", spec: `{requeue: {backoff: ""}}`, want: "spec.requeue.backoff"},
		{kind: "SchedulingPolicy", name: "a negative duration", spec: `{requeue: {backoff: -5}}`, want: "a number of seconds is 0 to 3153600000"},

		{kind: "Topology", name: "levels", spec: `{levels: [{nodeLabel: example.com/spine}, {nodeLabel: example.com/leaf, alias: leaf}, {nodeLabel: kubernetes.io/hostname}]}`},
		{kind: "Topology", name: "no levels", spec: `{levels: []}`, want: "spec.levels"},
		{kind: "Topology", name: "a level twice", spec: `{levels: [{nodeLabel: a}, {nodeLabel: b}, {nodeLabel: a}]}`, want: "each label is one level"},
		{kind: "Topology", name: "an alias twice", spec: `{levels: [{nodeLabel: a, alias: x}, {nodeLabel: b, alias: x}]}`, want: "each alias is one level's"},
		{kind: "Topology", name: "nodes above others", spec: `{levels: [{nodeLabel: kubernetes.io/hostname}, {nodeLabel: a}]}`, want: "kubernetes.io/hostname is the last level"},
		{kind: "Topology", name: "not a label", spec: `{levels: [{nodeLabel: "a b"}]}`, want: "spec.levels[0].nodeLabel"},
		{kind: "Topology", name: "an alias that means another level", spec: `{levels: [{nodeLabel: a, alias: node}]}`, want: "node and hbd are levels of their own"},
		{kind: "Topology", name: "other labels", old: `{levels: [{nodeLabel: a}]}`, spec: `{levels: [{nodeLabel: b}]}`, want: "the labels of the levels cannot be changed"},
		{kind: "Topology", name: "a level more", old: `{levels: [{nodeLabel: a}]}`, spec: `{levels: [{nodeLabel: a}, {nodeLabel: b}]}`, want: "the labels of the levels cannot be changed"},
		{kind: "Topology", name: "another alias", old: `{levels: [{nodeLabel: a}]}`, spec: `{levels: [{nodeLabel: a, alias: rack}]}`},
	} {
		t.Run(test.kind+"/"+test.name, func(t *testing.T) {
			d := all[test.kind]
			var old map[string]any
			if test.old != "" {
				old = parse(t, test.kind, "object", test.old)
				if errs := d.admit(t, old, nil); len(errs) > 0 {
					t.Fatalf("the old object: %q", errs)
				}
			}
			errs := d.admit(t, parse(t, test.kind, "object", test.spec), old)
			switch {
			case test.want == "" && len(errs) > 0:
				t.Errorf("refused: %q", errs)
			case test.want != "" && !slices.ContainsFunc(errs, func(e string) bool { return strings.Contains(e, test.want) }):
				t.Errorf("got %q, want one with %q", errs, test.want)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	all := definitions(t)
	queue := parse(t, "Queue", "q", "{}")
	policy := parse(t, "SchedulingPolicy", "p", "{}")
	all["Queue"].admit(t, queue, nil)
	all["SchedulingPolicy"].admit(t, policy, nil)
	if spec := queue["spec"].(map[string]any); spec["mode"] != "Shared" || spec["weight"] != int64(1) || spec["priority"] != int64(0) || spec["fairBetween"] != "None" || spec["protection"] != "Allowed" || spec["quotaScope"] != "Queue" || len(spec) != 6 {
		t.Errorf("queue %v", spec)
	}
	if spec := policy["spec"].(map[string]any); spec["base"] != "default" || len(spec) != 1 {
		t.Errorf("policy %v", spec)
	}
}

// The name of a queue is the value of a label on its jobs.
func TestLongNames(t *testing.T) {
	errs := definitions(t)["Queue"].admit(t, parse(t, "Queue", strings.Repeat("q", 64), "{}"), nil)
	if len(errs) != 1 || !strings.Contains(errs[0], "at most 63 characters") {
		t.Errorf("got %q", errs)
	}
}
