// Command chart renders Muster's Helm chart with its default values, as the
// kustomize base has it.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

func main() {
	dir := flag.String("dir", "../deploy/helm/muster", "the chart")
	flag.Parse()
	files, err := render(*dir, nil)
	if err != nil {
		fmt.Fprintf(os.Stderr, "chart: %v\n", err)
		os.Exit(1)
	}
	fmt.Print("# Made from the chart by make generate. DO NOT EDIT.\n" + strings.Join(files, ""))
}

// render returns the objects that the chart in dir makes with values over its
// own, a document of YAML each, in the order of the files' names. The release is
// called muster, and its namespace muster-system.
func render(dir string, values map[string]any) ([]string, error) {
	chart, err := loader.LoadDir(dir)
	if err != nil {
		return nil, err
	}
	return renderChart(chart, values)
}

// renderChart is render of a chart that has been read.
func renderChart(chart *chart.Chart, values map[string]any) ([]string, error) {
	release := chartutil.ReleaseOptions{Name: "muster", Namespace: "muster-system", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	e := engine.Engine{Strict: true}
	rendered, err := e.Render(chart, all)
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range rendered {
		if strings.HasSuffix(name, ".yaml") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var docs []string
	for _, name := range names {
		for _, doc := range strings.Split("\n"+rendered[name], "\n---\n") {
			if strings.TrimSpace(doc) != "" {
				docs = append(docs, "---\n"+strings.TrimSpace(doc)+"\n")
			}
		}
	}
	return docs, nil
}
