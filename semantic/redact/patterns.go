package redact

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// secret is a form of a key or password. A text is searched for the expression only if it has one of the literals, if
// there are any. The first group that matches is the secret, all of the match without a group.
type secret struct {
	find []string // in lower case
	form *regexp.Regexp
}

// secretForms are in the order in which they are taken out: the longest first.
var secretForms = []secret{
	{[]string{"private key"}, regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)`)},
	{[]string{"://"}, regexp.MustCompile(`://([^\s/"'<>]+)@`)},                      // user:password@ and token@; a password may have an @
	{[]string{"eyj"}, regexp.MustCompile(`\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?`)}, // JSON web tokens
	{[]string{"bearer", "authorization"}, regexp.MustCompile(`(?i)\b(?:bearer[ \t]+|(?:bearer|authorization)\\*["']?[ \t]*[:=][ \t]*\\*["']?(?:(?:token|bearer|basic)[ \t]+)?)([\w.~+/=-]{12,})`)},
	{[]string{"akia", "asia", "aroa", "aida"}, regexp.MustCompile(`\b(?:AKIA|ASIA|AROA|AIDA)[0-9A-Z]{16}\b`)},  // AWS
	{[]string{"hf_", "api_org_"}, regexp.MustCompile(`\b(?:hf_|api_org_)[A-Za-z0-9]{16,}`)},                    // Hugging Face
	{[]string{"gh", "github_pat_"}, regexp.MustCompile(`\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,})`)}, // GitHub
	{[]string{"glpat-", "gldt-", "glrt-"}, regexp.MustCompile(`\bgl(?:pat|dt|rt)-[\w-]{16,}`)},                 // GitLab
	{[]string{"xox"}, regexp.MustCompile(`\bxox[a-z]-[\w-]{10,}`)},                                             // Slack
	{[]string{"sk-", "pk-", "sk_live_", "rk_live_"}, regexp.MustCompile(`\b(?:[sp]k-|[rs]k_live_)[\w-]{16,}`)}, // OpenAI, Anthropic and others
	{[]string{"aiza", "ya29."}, regexp.MustCompile(`\b(?:AIza[\w-]{30,}|ya29\.[\w-]{16,})`)},                   // Google
	{[]string{"npm_", "pypi-", "nvapi-", "wandb_v", "dapi"}, regexp.MustCompile(`\b(?:npm_\w{16,}|pypi-[\w-]{16,}|nvapi-[\w-]{16,}|wandb_v\d+_\w{16,}|dapi[0-9a-f]{32})`)},
	{[]string{"sig=", "signature=", "accountkey=", "credential="}, regexp.MustCompile(`(?i)\b(?:sig|x-amz-signature|x-amz-credential|x-goog-signature|accountkey|sharedaccesskey)=([\w%+/=.-]{12,})`)},
	{[]string{"cookie:"}, regexp.MustCompile(`(?i)\bcookie:[ \t]*([^\s"'].{5,})`)},
	{[]string{"curl", "sshpass"}, regexp.MustCompile(`\b(?:curl\b[^\n]*?[ \t](?:-u|--user)[ \t=]*|sshpass[ \t]+-p[ \t]*)["']?([^\s"']+)`)},
	{[]string{"pass", "pwd", "secret", "key", "token", "credential"}, assigned},
	{[]string{"token", "key", "secret", "pass", "pwd", "auth"}, variable},
	{[]string{"token"}, regexp.MustCompile(`(?i)(?:\btoken(?:=["']?|\\*["']?[ \t]*[:=][ \t]*\\*["'])|--token[ \t]+["']?)([\w.~+/=-]{16,})`)},
	{[]string{`"auth"`}, regexp.MustCompile(`"auth"[ \t]*:[ \t]*"([^"\n]{8,})"`)}, // of Docker
	{nil, regexp.MustCompile(`\b[0-9a-fA-F]{40}\b`)},                              // of wandb, and sums that no model needs
}

// assigned is a value behind a name that says that it is secret, in the same line. Names of training such as max_tokens and tokenizer are not among them.
var assigned = regexp.MustCompile(`(?i)(?:password|passwd|passphrase|pwd|secret|(?:api|access|secret|private|auth|account|encryption|signing|wandb)[_-]?key(?:[_-]?secret)?|` +
	`(?:\b|_)(?:api|access|auth|refresh|session|id|bearer|hf|hub|gh|github|gitlab|wandb|slack|bot|secret|security|registry)[_-]?token|credentials?)` +
	`\\*["']?(?:[ \t]*[:=]+[ \t]*|[ \t]+)` + quotedOrPlain)

// variable is the same of a variable of the environment, whose names follow other rules: PGPASSWORD, NGC_TOKEN, DB_PASS.
var variable = regexp.MustCompile(`\b[A-Z][A-Z0-9_]*(?:TOKEN|KEY|SECRET|PASS|PASSWORD|PASSWD|PWD|AUTH)["']?[ \t]*[:=][ \t]*` + quotedOrPlain)

// quotedOrPlain is a value in quotes, or one that ends where a value without quotes does.
const quotedOrPlain = `(?:"([^"\n]{6,})"|'([^'\n]{6,})'|\\*["']?([^\s"',;)}\]<>]{6,}))`

var (
	email = regexp.MustCompile(`[A-Za-z0-9][A-Za-z0-9._%+-]*@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+`)
	ipv4  = regexp.MustCompile(`\d{1,3}(?:\.\d{1,3}){3}`)
	mac   = regexp.MustCompile(`\b(?:[0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}\b`)
	colon = regexp.MustCompile(`[0-9a-fA-F:.]*:[0-9a-fA-F:.]*:[0-9a-fA-F:.]*`)
	names = regexp.MustCompile(`[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)+`)
	token = regexp.MustCompile(`[A-Za-z0-9](?:[\w.-]*\w)?`)
	path  = regexp.MustCompile(`(?:^|[^\w./])((?:/[\w.+@-]+)+)/[\w.+@-]`)
)

// hostOf has what shows that a word is the name of a host: the group.
var hostOf = []*regexp.Regexp{
	regexp.MustCompile(`(?i)\b(?:host(?:_?name)?|node(?:_?name|_?list)?|nodes|server|endpoint|master|machine)["']?(?:\s*[=:]\s*|\s+)["']?([a-z][a-z0-9-]*\d[a-z0-9-]*)`),
	regexp.MustCompile(`\b(?:MASTER_ADDR|HOSTNAME|SLURMD_NODENAME|SLURM_NODELIST|NODE_NAME)=["']?([A-Za-z][\w-]*)`),
	regexp.MustCompile(`\bON ([A-Za-z][\w-]*) CANCELLED`),
	regexp.MustCompile(`\bsrun: error: ([A-Za-z][\w-]*): task`),
	regexp.MustCompile(`(?m)^(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S+) ([A-Za-z][\w-]*) [\w./()-]+(?:\[\d+\])?: `),
	regexp.MustCompile(`\b([A-Za-z][\w-]*):\d+:\d+ \[\d+\] NCCL`),
	regexp.MustCompile(`\[([A-Za-z][\w-]*\d[\w-]*):\d+\]`),
	regexp.MustCompile(`\w@([A-Za-z][\w-]*)\b`),
	regexp.MustCompile(`://([A-Za-z][\w-]*)(?::\d+|/)`),
	regexp.MustCompile(`\b(ip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3})\b`),
	regexp.MustCompile(`(?i)\b((?:[a-z0-9]+-)*(?:node|dgx|hgx|compute|login|nid)-?\d[a-z0-9-]*)\b`),
}

// noHost is a word in the place of a host that is none: this host, a rank, a device, a model of GPU, a version.
var noHost = regexp.MustCompile(`(?i)^(?:local(?:host)?|rank\d*|default\d*|gpu\d*|cuda\d*|worker-?\d*|(?:[ahvltbp]|gb|gh|rtx|mi)\d{1,4}[a-z]?|x86.*|arm\d+)$`)

var userOf = []*regexp.Regexp{
	regexp.MustCompile(`/(?:home|Users)/([A-Za-z_][\w-]*)`),
	regexp.MustCompile(`(?i)\b(?:user(?:_?name)?|login|owner)["']?\s*[=:]\s*["']?([a-z_][\w-]*)`),
	regexp.MustCompile(`\buid=\d+\(([\w-]+)\)`),
	regexp.MustCompile(`\b([A-Za-z_][\w-]*)@[A-Za-z]`),
}

// A name with a domain at its end is a host's. In code, net and io are more often an attribute: these need more around them.
var (
	clear   = strings.Fields("com org edu gov mil local internal lan corp intranet intra localdomain svc home arpa")
	unclear = strings.Fields("net io ai dev co cloud app info eu us uk de fr ch at nl be se no fi dk pl it es pt cn jp kr tw hk sg in au nz ca br ru cz il za")
	public  = strings.Fields("huggingface.co hf.co github.com githubusercontent.com gitlab.com pypi.org pytorch.org python.org nvidia.com wandb.ai openai.com " +
		"googleapis.com amazonaws.com kaggle.com docker.io nvcr.io quay.io kubernetes.io arxiv.org conda.io anaconda.org apache.org tensorflow.org w3.org example.com")
)

// isHost says whether a name with dots is a host's, by what stands before and behind it.
func isHost(name, before, after string) bool {
	lower := strings.ToLower(name)
	if slices.ContainsFunc(public, func(p string) bool { return lower == p || strings.HasSuffix(lower, "."+p) }) {
		return false
	}
	labels := strings.Split(lower, ".")
	switch top := labels[len(labels)-1]; {
	case strings.HasPrefix(after, "("), strings.HasPrefix(after, "_"), strings.HasSuffix(before, "_"):
		return false // a function or a variable
	case slices.Contains(clear, top):
		return true
	case !slices.Contains(unclear, top):
		return strings.HasSuffix(before, "://") && len(labels) > 1 && strings.Trim(top, "0123456789") != ""
	}
	port := len(after) > 1 && after[0] == ':' && after[1] >= '0' && after[1] <= '9'
	return strings.HasSuffix(before, "//") || strings.HasSuffix(before, "@") || port || strings.HasPrefix(after, "/") ||
		len(labels) > 2 && strings.ContainsAny(name, "0123456789-")
}

// isAddress says whether a text of hexadecimal digits and colons is an IPv6 address, and which part of it. Slices of Python such as 1::2 are
// addresses, too, so that it must have a group of four digits, or four groups.
func isAddress(text string) (from, to int, ok bool) {
	from, to = 0, len(text)
	for to > from && (text[to-1] == '.' || text[to-1] == ':' && !strings.HasSuffix(text[:to], "::")) {
		to--
	}
	if strings.HasPrefix(text, ":") && !strings.HasPrefix(text, "::") {
		from = 1
	}
	if from >= to {
		return 0, 0, false
	}
	a, err := netip.ParseAddr(text[from:to])
	if last := strings.LastIndexByte(text[from:to], ':'); err != nil && last > 0 { // a port behind it
		to = from + last
		a, err = netip.ParseAddr(text[from:to])
	}
	if err != nil || here(a) {
		return 0, 0, false
	}
	groups := strings.FieldsFunc(text[from:to], func(r rune) bool { return r == ':' })
	return from, to, len(groups) >= 4 || slices.ContainsFunc(groups, func(g string) bool { return len(g) >= 4 })
}

// here says whether an address means this host.
func here(a netip.Addr) bool { return a.IsLoopback() || a.IsUnspecified() }
