// Package deploy holds what a cluster needs to run Muster: the definitions of
// its objects, for Go programs too; a Helm chart; the kustomize base that is
// made from it; an image.
package deploy

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

//go:embed crds/*_*.yaml
var files embed.FS

// CRD is a CustomResourceDefinition.
type CRD struct {
	// Name is that of the object, such as "queues.muster.sh".
	Name string
	// YAML is the object.
	YAML []byte
}

// CRDs returns the definitions of Muster's objects, in the order of their
// names. They are as `make generate` makes them from api/v1alpha1.
func CRDs() []CRD {
	entries, err := fs.ReadDir(files, "crds")
	if err != nil {
		panic(fmt.Sprintf("read the embedded definitions: %v", err))
	}
	var all []CRD
	for _, e := range entries {
		data, err := files.ReadFile(path.Join("crds", e.Name()))
		if err != nil {
			panic(fmt.Sprintf("read the embedded definitions: %v", err))
		}
		group, plural, _ := strings.Cut(strings.TrimSuffix(e.Name(), ".yaml"), "_")
		all = append(all, CRD{Name: plural + "." + group, YAML: data})
	}
	return all
}
