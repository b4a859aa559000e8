// Package check has the experiments of make gpu-check: what pausing costs on the
// GPU of this machine, each with a criterion and a verdict. Without a GPU its
// test runs them on gpu/fake, so that they work when there is one.
package check
