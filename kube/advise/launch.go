package advise

import (
	"regexp"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/kube/translate"
	"github.com/muster-sched/muster/semantic/metadata"
)

// Bounds of what is read of a pod, whose author may write anything.
const (
	mostCommand = 32 << 10 // bytes
	mostEnv     = 256      // variables
	mostValue   = 1 << 10  // bytes of each; longer ones are no settings
)

// LaunchOf returns what starts a pod: of the container that asks for GPUs, else of the one that its annotation names, as kubectl takes it, else
// of the first.
func LaunchOf(p *v1.Pod) metadata.Launch {
	c := container(p)
	if c == nil {
		return metadata.Launch{}
	}
	l := metadata.Launch{Image: imageName(c.Image)}
	values := map[string]string{}
	for _, e := range c.Env {
		if e.ValueFrom != nil || len(e.Value) > mostValue || len(l.Env) == mostEnv || !variable.MatchString(e.Name) {
			continue
		}
		// Values that name others twice, and these others twice, would grow without end.
		if value := expand(e.Value, values); len(value) <= mostValue {
			values[e.Name] = value
			l.Env = append(l.Env, e.Name+"="+value)
		}
	}
	var words []string
	size := 0
	for _, list := range [][]string{c.Command, c.Args} {
		for _, word := range list {
			if len(word) <= mostCommand {
				word = quote(expand(word, values))
			}
			if size += len(word) + 1; size > mostCommand {
				return l // a part of it may say something else
			}
			words = append(words, word)
		}
	}
	l.Command = strings.Join(words, " ")
	return l
}

// Asks returns the user that a pod names, empty for none, and the GPU models that it asks for.
func Asks(p *v1.Pod) (user string, models []string) {
	var a translate.Attributes
	_ = a.Read(p) // what is wrong, the scheduler says in a condition
	r, _ := translate.Request(p, &a)
	return a.User, r.Models
}

// container returns the container that is the job, nil of a pod without any.
func container(p *v1.Pod) *v1.Container {
	var named *v1.Container
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		if len(translate.GPUResources(c.Resources.Requests)) > 0 {
			return c
		}
		if named == nil || c.Name == p.Annotations["kubectl.kubernetes.io/default-container"] {
			named = c
		}
	}
	return named
}

var (
	variable  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	reference = regexp.MustCompile(`\$\$|\$\(([A-Za-z_][A-Za-z0-9_]*)\)`)
)

// expand replaces $(NAME) by the value of the variable, as the kubelet does. A name that is not known stays; $$ is a dollar sign.
func expand(text string, values map[string]string) string {
	if !strings.Contains(text, "$") {
		return text
	}
	return reference.ReplaceAllStringFunc(text, func(r string) string {
		if r == "$$" {
			return "$"
		}
		if v, ok := values[r[2:len(r)-1]]; ok {
			return v
		}
		return r
	})
}

var bare = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quote returns a word as a shell reads it.
func quote(word string) string {
	if bare.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// imageName returns the name of an image: what stays the same when it is built again, or pulled from elsewhere.
func imageName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	image = image[strings.LastIndexByte(image, '/')+1:]
	image, _, _ = strings.Cut(image, ":")
	return image
}
