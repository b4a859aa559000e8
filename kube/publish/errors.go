package publish

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/muster-sched/muster/agent/agentpb"
	"github.com/muster-sched/muster/api/v1alpha1"
)

// Bounds of the annotation that has the errors of the driver.
const (
	maxErrors    = 20
	maxErrorText = 300         // bytes
	sameError    = time.Minute // an error of the same number and GPU within this time of one that is written is part of it
)

// errorsOf returns the last errors of the driver, the oldest first, as the annotation of nodes has them; empty for none.
func errorsOf(h *agentpb.Hardware) string {
	var list []v1alpha1.GPUError
	type kind struct {
		pci  string
		code int32
	}
	last := map[kind]time.Time{}
	for _, x := range h.Xids {
		at := x.At.AsTime()
		if before, ok := last[kind{x.Pci, x.Code}]; ok && at.Sub(before) < sameError {
			continue
		}
		last[kind{x.Pci, x.Code}] = at
		text := strings.ToValidUTF8(x.Text[:min(len(x.Text), maxErrorText)], "")
		list = append(list, v1alpha1.GPUError{At: metav1.NewMicroTime(at), PCI: x.Pci, Text: text})
	}
	list = slices.Delete(list, 0, max(0, len(list)-maxErrors))
	if list == nil {
		return ""
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err) // a bug: it has times and texts
	}
	return string(text)
}

// writeErrors writes the annotation, when there are other errors than before. A node that started again has none, and keeps those that are written.
func (p *Publisher) writeErrors(ctx context.Context, h *agentpb.Hardware) error {
	text := errorsOf(h)
	if text == "" || text == p.errors {
		return nil
	}
	apply := corev1.Node(p.Node).WithAnnotations(map[string]string{v1alpha1.GPUErrorsAnnotation: text})
	_, err := p.Client.CoreV1().Nodes().ApplyStatus(ctx, apply, metav1.ApplyOptions{FieldManager: manager + "-errors", Force: true})
	if err == nil {
		p.errors = text
	}
	return err
}
