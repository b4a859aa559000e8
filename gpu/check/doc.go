// Package check has the experiments of make gpu-check: what pausing costs on the
// GPU of this machine, what kernels record there and how requests run by plans on
// two parts of it, each with a criterion and a verdict. Without a GPU its tests run
// them on gpu/fake, so that they work when there is one.
package check
