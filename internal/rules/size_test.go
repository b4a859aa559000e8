package rules

import (
	"go/ast"
	"testing"
)

// A reader can learn a package of the scheduler, or a type, in one sitting. One that grows past
// these figures has two purposes, and a seam between them to be found.
func TestPackagesOfTheSchedulerAreSmall(t *testing.T) {
	const mostLines, mostMethods = 4000, 80
	lines, methods := map[string]int{}, map[string]int{}
	for _, f := range sources(t) {
		if !covers("kube/", f.folder+"/") {
			continue
		}
		lines[f.folder] += f.set.Position(f.file.FileEnd).Line - 1
		for _, d := range f.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				methods[f.folder+"."+receiver(fn.Recv.List[0].Type)]++
			}
		}
	}
	if lines["kube"] == 0 || methods["kube.Scheduler"] == 0 {
		t.Fatal("the scheduler is not found")
	}
	for folder, n := range lines {
		if n > mostLines {
			t.Errorf("%s has %d lines beside its tests, expected at most %d", folder, n, mostLines)
		}
	}
	for name, n := range methods {
		if n > mostMethods {
			t.Errorf("%s has %d methods, expected at most %d", name, n, mostMethods)
		}
	}
}

// receiver names the type of a method.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
