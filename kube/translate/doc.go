// Package translate turns Kubernetes objects into the engine's vocabulary and
// back. Its functions are pure: they neither read nor write the API.
//
// What can be said about a job in labels, annotations and objects is one table
// ([attributes]); what other schedulers call the same things is another
// ([aliases]). A new mechanism of the engine needs a row, not a new way in.
package translate
