package extract

import (
	"strings"
	"sync"
	"unicode"

	"github.com/muster-sched/muster/semantic/metadata"
)

// subjects has the words by which code says what it is about.
var subjects = sync.OnceValue(func() map[string]metadata.Task {
	of := map[string]metadata.Task{}
	for _, row := range readTable("subjects.tsv", 2) {
		for word := range strings.FieldsSeq(row[1]) {
			of[word] = metadata.Task(row[0])
		}
	}
	return of
})

// leastWords is how often the words of a task occur at least, and twice as often as those of any other one.
const leastWords = 8

// subject returns the task of which the code of a job has the most words in names, comments and texts, and where the first of them is. It returns nothing if they do not tell.
func (x *extraction) subject() (metadata.Task, string) {
	count, first := map[metadata.Task]int{}, map[metadata.Task]string{}
	for i := range x.sources {
		p := &x.sources[i]
		source, ok := x.tree.open(p.file)
		if !ok || p.rank < imported {
			continue
		}
		n := 0
		for line := range strings.SplitSeq(string(source), "\n") {
			n++
			for _, w := range wordsOf(line) {
				if t := subjects()[w]; t != "" {
					if count[t]++; first[t] == "" {
						first[t] = where(p.file, n)
					}
				}
			}
		}
	}
	best, most, second := metadata.Task(""), 0, 0
	for _, t := range metadata.Tasks {
		switch n := count[t]; {
		case n > most:
			best, most, second = t, n, most
		case n > second:
			second = n
		}
	}
	if most < leastWords || most < 2*second {
		return "", ""
	}
	return best, first[best]
}

// wordsOf returns the words of a line in lower case: of trainGraphs and node_features, train, graphs, node and features.
func wordsOf(line string) []string {
	var words []string
	start, lower := -1, false
	end := func(i int) {
		if start >= 0 && i-start > 2 {
			words = append(words, strings.ToLower(line[start:i]))
		}
		start = -1
	}
	for i, r := range line {
		switch {
		case !unicode.IsLetter(r):
			end(i)
		case unicode.IsUpper(r) && lower:
			end(i)
			start = i
		case start < 0:
			start = i
		}
		lower = unicode.IsLower(r)
	}
	end(len(line))
	return words
}
