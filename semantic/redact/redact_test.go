package redact

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// everything takes out all there is.
var everything = Rules{Emails: true, Addresses: true, Hosts: true, Users: true, Paths: true, Names: []string{"Project-X"}}

func TestHide(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"connect to 10.1.2.3:29500 and 10.1.2.4, then 10.1.2.3 again", "connect to <ip-1>:29500 and <ip-2>, then <ip-1> again"},
		{"[fe80::1ff:fe23:4567:890a%eth0]:29500, 2001:db8::8a2e:370:7334.", "[<ip-1>%eth0]:29500, <ip-2>."},
		{"127.0.0.1, ::1 and 0.0.0.0 mean this host", "127.0.0.1, ::1 and 0.0.0.0 mean this host"},
		{"12:00:01 x[::2] x[1::2] c10::Error std::dec 0000:3b:00.0 1.2.3", "12:00:01 x[::2] x[1::2] c10::Error std::dec 0000:3b:00.0 1.2.3"},
		{"port 0c:42:a1:7f:00:12 down", "port <ip-1> down"},
		{"mail ann.lee+ml@lab.example.org now", "mail <email-1> now"},
		{"HF_TOKEN=hf_abcdefghijklmnopqrstuv", "HF_TOKEN=<secret-1>"},
		{`password: "hunter2hunter2"`, `password: "<secret-1>"`},
		{"git clone https://ann:pa55word@git.corp.internal/x.git", "git clone https://<secret-1>@<host-1>/x.git"},
		{"max_tokens=1024 num_tokens: 300000000000 tokenizer = gpt2tokenizer pad_token: <pad>", "max_tokens=1024 num_tokens: 300000000000 tokenizer = gpt2tokenizer pad_token: <pad>"},
		{"import torch.nn.functional as F; self.net(x); cfg.io.path; torchvision.io.read()", "import torch.nn.functional as F; self.net(x); cfg.io.path; torchvision.io.read()"},
		{"https://huggingface.co/gpt2 and https://store.hpc.uni-x.de/gpt2", "https://huggingface.co/gpt2 and https://<host-1>/gpt2"},
		{"slurmstepd: error: *** JOB 881 ON n17 CANCELLED; n17 and n170", "slurmstepd: error: *** JOB 881 ON <host-1> CANCELLED; <host-1> and n170"},
		{"Nov  3 10:00:00 gpuhead kernel: NVRM: Xid\ngpuhead is gone", "Nov  3 10:00:00 <host-1> kernel: NVRM: Xid\n<host-1> is gone"},
		{"rank0 on node a100, gpu0, worker-3", "rank0 on node a100, gpu0, worker-3"},
		{"n4:712:712 [0] NCCL INFO Bootstrap", "<host-1>:712:712 [0] NCCL INFO Bootstrap"},
		{"a file says <host-1> and <secret-9>", "a file says <literal-1> and <literal-2>"},
		{`password="abc,def;ghi" 'api_key': 'a b c d e f', "{\"secret\": \"hunter2222\"}"`, `password="<secret-1>" 'api_key': '<secret-2>', "{\"secret\": \"<secret-3>"}"`},
		{"PGPASSWORD=hunter2222 DB_PASS=hunter3333 NGC_TOKEN=abcdefgh1234", "PGPASSWORD=<secret-1> DB_PASS=<secret-2> NGC_TOKEN=<secret-3>"},
		{"secretAccessKey: wJalrXUtnFEMI/K7MDENG dbPassword: hunter2222", "secretAccessKey: <secret-1> dbPassword: <secret-2>"},
		{`--token abcdefgh12345678 token=ABCDEFGH12345678 "token": "abcdefgh87654321"`, `--token <secret-1> token=<secret-2> "token": "<secret-3>"`},
		{"postgres://ann:p@ss@10.1.2.3/jobs", "postgres://<secret-1>@<ip-1>/jobs"},
		{"curl -s -u ann:pa55 localhost; sshpass -p pa55 ssh", "curl -s -u <secret-1> localhost; sshpass -p <secret-2> ssh"},
		{"Authorization: Basic YW5uOnBhNTV3b3Jk\nCookie: sid=1; csrf=2\n", "Authorization: Basic <secret-1>\nCookie: <secret-2>\n"},
		{`"auth": "YW5uOnBhNTV3b3Jk"`, `"auth": "<secret-1>"`},
		{"class BasicTransformerBlock: pad_token = tokenizer.eos_token", "class BasicTransformerBlock: pad_token = tokenizer.eos_token"},
		{"missing credentials:\nRuntimeError: boom", "missing credentials:\nRuntimeError: boom"},
	} {
		r := New(Default)
		got := r.Hide(c.text)
		if got != c.want {
			t.Errorf("%s\nbecame %s\nwant   %s", c.text, got, c.want)
		}
		if back := r.Restore(got); !strings.Contains(got, "<secret") && back != c.text {
			t.Errorf("restored as %s", back)
		}
	}
}

func TestOptionalRules(t *testing.T) {
	r := New(everything)
	const text = "user=annlee runs /home/annlee/project-x/train.py with /data/team/pile/train.bin; annlee@n7"
	const want = "user=<user-1> runs /home/<user-1>/<name-1>/train.py with <path-1>/train.bin; <user-1>@<host-1>"
	got := r.Hide(text)
	if got != want {
		t.Errorf("became %s\nwant   %s", got, want)
	}
	if back := r.Restore(got); back != text {
		t.Errorf("restored as %s", back)
	}
	if got := New(Rules{}).Hide(text + " 10.1.2.3"); got != text+" 10.1.2.3" {
		t.Errorf("without rules: %s", got)
	}
}

// Of two names that begin alike the longer one is taken out whole.
func TestNames(t *testing.T) {
	if got := New(Rules{Names: []string{"acme", "acme-lab", " "}}).Hide("acme ACME-lab"); got != "<name-1> <name-2>" {
		t.Errorf("became %s", got)
	}
}

// A name of a hundred thousand parts is read as fast as another text: this test would take minutes.
func TestLongNames(t *testing.T) {
	const n = 1 << 18
	for _, part := range []string{"a.", "a.com.", "1.", "a-", "abc1."} {
		r := New(Default)
		got := r.Hide("host=abc1 " + strings.Repeat(part, n/len(part)))
		if part == "abc1." && strings.Contains(got, "abc1") || !strings.HasPrefix(got, "host=<host-") {
			t.Errorf("%s: %.40s", part, got)
		}
	}
}

// Placeholders are the same in all texts of a conversation, and a secret never comes back, whatever a text asks for.
func TestConversation(t *testing.T) {
	r := New(Default)
	first := r.Hide("10.9.8.7 has AKIAABCDEFGHIJKLMNOP")
	second := r.Hide("again 10.9.8.7: <secret-1> <ip-1>")
	if first != "<ip-1> has <secret-1>" || second != "again <ip-1>: <literal-1> <literal-2>" {
		t.Errorf("%s\n%s", first, second)
	}
	if got := r.Restore("<secret-1> <ip-1> <ip-7>"); got != "<secret-1> 10.9.8.7 <ip-7>" {
		t.Errorf("restored as %s", got)
	}
}

func letters(n, m int) *rapid.Generator[string] {
	return rapid.StringMatching(fmt.Sprintf(`[A-Za-z0-9]{%d,%d}`, n, m))
}

func with(prefix string, g *rapid.Generator[string], suffix string) *rapid.Generator[string] {
	return rapid.Map(g, func(s string) string { return prefix + s + suffix })
}

// values are what must not survive, each as a text and what of it is secret.
func values() *rapid.Generator[[2]string] {
	same := func(g *rapid.Generator[string]) *rapid.Generator[[2]string] {
		return rapid.Map(g, func(s string) [2]string { return [2]string{s, s} })
	}
	around := func(before string, g *rapid.Generator[string], after string) *rapid.Generator[[2]string] {
		return rapid.Map(g, func(s string) [2]string { return [2]string{before + s + after, s} })
	}
	octets := rapid.Custom(func(t *rapid.T) string {
		b := func(from int) uint8 { return uint8(rapid.IntRange(from, 223).Draw(t, "octet")) }
		return netip.AddrFrom4([4]byte{1 + b(0)%100, b(0), b(0), b(1)}).String()
	})
	groups := rapid.Custom(func(t *rapid.T) string {
		a := [16]byte{0x20, 0x01}
		for i := 2; i < 16; i++ {
			a[i] = uint8(rapid.IntRange(0, 255).Draw(t, "byte"))
			if rapid.Bool().Draw(t, "zero") {
				a[i] = 0
			}
		}
		return netip.AddrFrom16(a).String()
	})
	return rapid.OneOf(
		same(with("AKIA", rapid.StringMatching(`[0-9A-Z]{16}`), "")), same(with("hf_", letters(20, 40), "")), same(with("ghp_", letters(30, 40), "")),
		same(with("github_pat_", letters(22, 60), "")), same(with("sk-", letters(20, 60), "")), same(with("glpat-", letters(20, 20), "")),
		same(with("xoxb-", rapid.StringMatching(`[0-9]{10,12}-[A-Za-z0-9]{20}`), "")), same(rapid.StringMatching(`[0-9a-f]{40}`)),
		same(with("eyJ", rapid.StringMatching(`[A-Za-z0-9_-]{10,30}\.eyJ[A-Za-z0-9]{10,30}\.[A-Za-z0-9]{20}`), "")),
		around("Authorization: Bearer ", letters(20, 60), ""), around("export WANDB_API_KEY=", letters(20, 40), ""), around("aws_secret_access_key = ", rapid.StringMatching(`[A-Za-z0-9/+]{40}`), ""),
		around(`"password": "`, letters(8, 20), `"`), around("postgres://user:", letters(8, 20), "@db:5432/x"),
		around("-----BEGIN RSA PRIVATE KEY-----\n", letters(64, 64), "\n-----END RSA PRIVATE KEY-----"), around("-----BEGIN OPENSSH PRIVATE KEY-----\n", letters(64, 64), "\n"),
		same(rapid.StringMatching(`[a-z]{3,8}\.[a-z]{3,8}@[a-z]{3,8}\.(com|org|de|io)`)), same(octets), same(groups),
		same(rapid.StringMatching(`[a-z]{3,6}\d{1,4}\.[a-z]{3,8}\.(internal|local|com|edu)`)), around("hostname=", rapid.StringMatching(`q[a-z]{3,6}-\d{3,4}`), ""),
		around("srun: error: ", rapid.StringMatching(`q[a-z]{3,6}\d{3,4}`), ": task 3: Exited"),
	)
}

// No value survives, wherever it stands; what is not secret comes back; and a second look at what is left finds nothing.
func TestNothingSurvives(t *testing.T) {
	between := rapid.SampledFrom([]string{" ", "\n", ", ", " (", ") ", "\n\tstep 10 loss 2.0 ", ` "`, `" `, "; x = [", "] ", " é ", "\x00 ", " <host-1> ", "\r\n"})
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		var secrets []string
		for range rapid.IntRange(1, 6).Draw(t, "values") {
			v := values().Draw(t, "value")
			text.WriteString(between.Draw(t, "between") + v[0] + between.Draw(t, "between"))
			secrets = append(secrets, v[1])
		}
		r := New(Default)
		got := r.Hide(text.String())
		for _, s := range secrets {
			if strings.Contains(got, s) {
				t.Fatalf("%q survives in %q", s, got)
			}
		}
		if back := r.Restore(got); !strings.Contains(got, "<secret-") && back != text.String() {
			t.Fatalf("%q is restored as %q", text.String(), back)
		}
		for _, part := range placeholder.Split(got, -1) {
			if again := New(Default).Hide(part); again != part {
				t.Fatalf("a second look at %q finds %q", part, again)
			}
		}
	})
}

// The forms of secrets, written down again and simpler: none is in what was hidden.
func TestForms(t *testing.T) {
	forms := regexp.MustCompile(`AKIA[0-9A-Z]{16}|hf_\w{16}|gh[pousr]_\w{16}|sk-\w{16}|PRIVATE KEY|://[^/\s<]*:[^/\s<]*@|\w+@\w+\.\w+|\d+\.\d+\.\d+\.\d+`)
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.OneOf(rapid.Map(values(), func(v [2]string) string { return v[0] }), rapid.StringN(0, 10, -1)), 1, 8).Draw(t, "parts"), " ")
		if got := New(Default).Hide(text); forms.MatchString(got) {
			t.Fatalf("%q has %q", got, forms.FindString(got))
		}
	})
}

func BenchmarkHide(b *testing.B) {
	const line = "[rank3]:   File \"/opt/conda/lib/python3.11/site-packages/torch/nn/modules/module.py\", line 1553, in _call_impl n17:712 [3] NCCL WARN from 10.1.2.3<41122>\n"
	text := strings.Repeat(line, 400)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		New(Default).Hide(text)
	}
}
