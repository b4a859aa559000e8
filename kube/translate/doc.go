// Package translate turns Kubernetes objects into the engine's vocabulary and
// back. Its functions are pure: they neither read nor write the API.
//
// One table ([attributes]) has everything that labels, annotations and objects can say
// about a job; another ([aliases]) has the names that other schedulers use for the same.
// A new mechanism of the engine needs only a new row.
package translate
