package gpu

import "testing"

// The kubelet's names of cgroups, with and without systemd, as version 1 and 2 of cgroups have them, on the machine and from a container.
func TestPodsOfCgroups(t *testing.T) {
	const uid = "5d1f0c4e-1111-4222-8333-444455556666"
	for text, want := range map[string]string{
		"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod5d1f0c4e_1111_4222_8333_444455556666.slice/cri-containerd-0123.scope\n": uid,
		"0::/kubepods.slice/kubepods-pod5d1f0c4e_1111_4222_8333_444455556666.slice\n":                                                              uid,
		"0::/../../kubepods-besteffort-pod5d1f0c4e_1111_4222_8333_444455556666.slice/cri-containerd-0123.scope\n":                                  uid,
		"12:cpuset:/\n11:memory:/kubepods/besteffort/pod5d1f0c4e-1111-4222-8333-444455556666/0123\n":                                               uid,
		"0::/kubepods/pod0123456789abcdef0123456789abcdef/0123\n":                                                                                  "0123456789abcdef0123456789abcdef",
		"0::/kubepods/pod" + uid + "/pod00000000-1111-4222-8333-444455556666/x\n":                                                                  uid,
		"0::/user.slice/podman.service\n": "", "0::/\n": "", "": "", "0::/machine.slice/libpod-0123.scope\n": "",
		"0::/kubepods/pod5d1f0c4e-1111-4222-8333-4444555566667/x\n": "", "0::/user.slice/mypod" + uid + "/x\n": "",
	} {
		if got := podOf([]byte(text)); got != want {
			t.Errorf("%q: found %q, expected %q", text, got, want)
		}
	}
}
