package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/muster-sched/muster/semantic/llm"
)

var tools = []llm.Tool{
	{
		Name: "file_tree", Description: "Lists the files of a folder and of the folders in it, with their sizes in bytes. Files that are no code or configuration are counted only.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string","description":"the folder, relative to the repository; \".\" is all of it"}},"required":["path"]}`),
	},
	{
		Name: "file_read", Description: "Returns lines of a text file, with their numbers.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string","description":"the file, relative to the repository"},` +
			`"from":{"type":"integer","description":"the first line, from 1"},"lines":{"type":"integer","description":"how many lines"}},"required":["path"]}`),
	},
}

const (
	maxFile    = 256 << 10 // bytes of a file that are read
	maxEntries = 400       // that file_tree shows
	maxFolder  = 2000      // entries of a folder that are looked at
	maxDepth   = 6
)

// tool runs a call, and returns what the model is to read: the result between marks, or an error.
func (c *conversation) tool(call llm.Call) string {
	var in struct {
		Path  string      `json:"path"`
		From  json.Number `json:"from"`
		Lines json.Number `json:"lines"`
	}
	if call.Arguments != "" && json.Unmarshal([]byte(call.Arguments), &in) != nil {
		return `error: expected arguments as a JSON object such as {"path": "train.py"}`
	}
	name := path.Clean(strings.TrimPrefix(c.redactor.Restore(in.Path), "./"))
	var text string
	var err error
	switch call.Name {
	case "file_tree":
		text, err = c.tree(name)
	case "file_read":
		from, _ := in.From.Int64()
		lines, _ := in.Lines.Int64()
		text, err = c.read(name, int(max(1, min(from, 1<<30))), int(max(0, min(lines, 1<<30))))
	default:
		return "error: there are two tools: file_tree and file_read"
	}
	if err != nil {
		return "error: " + err.Error()
	}
	return fmt.Sprintf("<data %s>\n%s\n</data %s>", c.mark, text, c.mark)
}

// Why a tool has no result, for the model.
var (
	errNoFile   = errors.New("the repository has no such file or folder")
	errNoText   = errors.New("that is no text file")
	errNotShown = errors.New("that file may hold secrets, and is not shown")
	errNoMore   = errors.New("the file has no such lines")
)

// read returns lines of a file. n is 0 for all that fit.
func (c *conversation) read(name string, from, n int) (string, error) {
	lines, ok := c.files[name]
	if !ok {
		text, err := c.file(name)
		if err != nil {
			return "", err
		}
		lines = strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		hidden := strings.Split(c.redactor.Hide(strings.Join(lines, "\n")), "\n")
		if c.files == nil {
			c.files = map[string][]string{}
		}
		c.files[name] = hidden
		c.seen.file(name, lines)
		lines = hidden
	}
	if from > len(lines) {
		return "", errNoMore
	}
	end := len(lines)
	if n > 0 {
		end = min(end, from-1+n)
	}
	var b strings.Builder
	for i := from - 1; i < end; i++ {
		l := fmt.Sprintf("%d| %s\n", i+1, shorten(lines[i]))
		if b.Len()+len(l) > c.in.Limits.Read {
			fmt.Fprintf(&b, "(cut off: the file has %d lines)", len(lines))
			break
		}
		c.seen.show(name, i)
		b.WriteString(l)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// shorten cuts a line that is too long for code.
func shorten(line string) string {
	const most = 400
	if line = strings.TrimRight(line, "\r"); len(line) > most {
		line = strings.ToValidUTF8(line[:most], "") + " (cut off)"
	}
	return line
}

// file returns the text of a regular file, at most its first maxFile bytes.
func (c *conversation) file(name string) (string, error) {
	if private(name) || private(c.linked(name)) {
		return "", errNotShown
	}
	f, err := c.in.Folder.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a named pipe must not hold us up
	if err != nil {
		return "", errNoFile
	}
	defer f.Close()
	if s, err := f.Stat(); err != nil || !s.Mode().IsRegular() {
		return "", errNoText
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil || bytes.IndexByte(data[:min(len(data), 8000)], 0) >= 0 {
		return "", errNoText
	}
	return strings.ToValidUTF8(string(data), "�"), nil
}

// linked returns the name of the file to which a name leads by links, in the folder; empty if it leads nowhere there.
func (c *conversation) linked(name string) string {
	root, err := filepath.EvalSymlinks(c.in.Folder.Name())
	if err != nil {
		return ""
	}
	to, err := filepath.EvalSymlinks(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		return ""
	}
	rel, err := filepath.Rel(root, to)
	if err != nil {
		return ""
	}
	return filepath.ToSlash(rel)
}

// tree lists a folder.
func (c *conversation) tree(name string) (string, error) {
	var b strings.Builder
	left := maxEntries
	if err := c.list(&b, name, 0, &left); err != nil {
		return "", errNoFile
	}
	text := c.redactor.Hide(b.String())
	if len(text) > c.in.Limits.Read {
		text = strings.ToValidUTF8(text[:c.in.Limits.Read], "") + "\n(cut off)"
	}
	if text == "" {
		text = "(empty)"
	}
	return strings.TrimSuffix(text, "\n"), nil
}

// list writes the entries of a folder, files before folders, each by name. Symbolic links are shown, and not followed.
func (c *conversation) list(b *strings.Builder, name string, depth int, left *int) error {
	folder, err := c.in.Folder.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	entries, err := folder.ReadDir(maxFolder)
	folder.Close()
	if err != nil && err != io.EOF {
		return err
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int {
		if a.IsDir() != b.IsDir() {
			if b.IsDir() {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name(), b.Name())
	})
	others := map[string]int{}
	for _, e := range entries {
		full := path.Join(name, e.Name())
		if private(full) || slices.Contains(skipped, e.Name()) {
			continue
		}
		if !e.IsDir() && !slices.Contains(shown, path.Ext(e.Name())) {
			others[path.Ext(e.Name())]++
			continue
		}
		if *left--; *left < 0 {
			b.WriteString("(more)\n")
			return nil
		}
		indent := strings.Repeat("  ", depth)
		if !e.IsDir() {
			fmt.Fprintf(b, "%s%s%s\n", indent, e.Name(), size(e))
			continue
		}
		fmt.Fprintf(b, "%s%s/\n", indent, e.Name())
		if depth+1 < maxDepth {
			_ = c.list(b, full, depth+1, left) // a folder that cannot be read is empty
		}
	}
	for _, ext := range slices.Sorted(maps.Keys(others)) {
		fmt.Fprintf(b, "%s(%d other files %s)\n", strings.Repeat("  ", depth), others[ext], ext)
	}
	return nil
}

func size(e os.DirEntry) string {
	info, err := e.Info()
	switch {
	case e.Type()&os.ModeSymlink != 0:
		return " (link)"
	case err != nil || !info.Mode().IsRegular():
		return " (no text file)"
	}
	return fmt.Sprintf(" %d", info.Size())
}

// shown are the endings of files that say what a job is. Files without one may be scripts, such as Makefile.
var shown = []string{".py", ".ipynb", ".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".conf", ".sh", ".bash", ".sbatch", ".slurm", ".md", ".rst", ".txt", ".gin", ".jsonnet", ".lua", ".r", ".jl", ".cpp", ".cu", ""}

// skipped are files and folders that are of tools, and not of the job.
var skipped = []string{".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints", "site-packages", "wandb", "mlruns", ".idea", ".vscode"}

// private says whether a file is one in which programs keep keys and passwords.
func private(name string) bool {
	for part := range strings.SplitSeq(strings.ToLower(name), "/") {
		switch {
		case slices.Contains([]string{".ssh", ".aws", ".kube", ".gnupg", ".docker", ".netrc", "_netrc", ".git-credentials", ".npmrc", ".pypirc", ".pgpass", ".htpasswd", "kubeconfig"}, part),
			strings.HasPrefix(part, ".env"), strings.HasPrefix(part, "id_rsa"), strings.HasPrefix(part, "id_ed25519"), strings.HasPrefix(part, "id_ecdsa"),
			strings.HasPrefix(part, "credentials"), strings.HasPrefix(part, "secrets."),
			slices.Contains([]string{".pem", ".key", ".p12", ".pfx", ".jks", ".kdbx", ".keystore"}, path.Ext(part)):
			return true
		}
	}
	return false
}
