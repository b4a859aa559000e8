package llm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Key is what an endpoint knows its user by. It prints as "(hidden)", whatever prints it.
type Key struct{ value string }

// longestKey bounds a key in bytes: a file that is longer is another one.
const longestKey = 16 << 10

// KeyFromEnv returns the key in an environment variable.
func KeyFromEnv(name string) (Key, error) {
	value := strings.TrimSpace(os.Getenv(name))
	if value == "" {
		return Key{}, fmt.Errorf("expected a key in the environment variable %s; found none", name)
	}
	return newKey(value)
}

// KeyFromFile returns the key in a file, such as a mounted secret.
func KeyFromFile(path string) (Key, error) {
	f, err := os.Open(path)
	if err != nil {
		return Key{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, longestKey+1))
	if err != nil {
		return Key{}, err
	}
	value := strings.TrimSpace(string(data))
	if value == "" {
		return Key{}, fmt.Errorf("%s: expected a key; found an empty file", path)
	}
	k, err := newKey(value)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return k, err
}

func newKey(value string) (Key, error) {
	if len(value) > longestKey || strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return Key{}, errors.New("expected a key in one line of ASCII, without spaces")
	}
	return Key{value}, nil
}

const hidden = "(hidden)"

// Format prints that there is a key, for every verb.
func (Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// MarshalText keeps the key out of JSON and YAML.
func (Key) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// hide takes the key out of a text, such as an error in which a server repeats it. Servers shorten keys in their own
// ways, so that each part of at least eight bytes of it goes, too.
func (k Key) hide(text string) string {
	if k.value == "" {
		return text
	}
	const part = 8
	if len(k.value) < part {
		return strings.ReplaceAll(text, k.value, hidden)
	}
	for i := 0; i+part <= len(text); {
		n := 0
		if strings.Contains(k.value, text[i:i+part]) {
			for n = part; i+n < len(text) && strings.Contains(k.value, text[i:i+n+1]); n++ {
			}
		}
		if n == 0 {
			i++
			continue
		}
		text = text[:i] + hidden + text[i+n:]
		i += len(hidden)
	}
	return text
}
