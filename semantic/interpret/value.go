package interpret

import (
	"strconv"
	"strings"

	"github.com/muster-sched/muster/semantic/python"
)

// Kind is what a value is.
type Kind uint8

// Kinds of values.
const (
	None   Kind = iota
	Bool        // Text is true or false
	Number      // Text
	String      // Text; a part of it that is not known is a $
	List        // Items
	Dict        // Keys and Fields
	Function
	Class
	Module
	Object   // of a class of the folder, or what something outside of it gives
	External // Text is a name outside of the folder, with dots: torch.optim.Adam
)

// Value is what an expression is found to be. A nil value is one that is not known.
type Value struct {
	Kind   Kind
	Text   string
	Items  []*Value
	Keys   []string
	Fields map[string]*Value
	// Of is what made an Object: a Class, or an External, whose arguments are Items and Fields. Of an attribute that is not known it
	// is the object, and Text the attribute's name.
	Of *Value
	// Given is the name of the first function that returns the object.
	Given string
	// From is where the value was stated.
	From Source

	open bool       // of a List: it may have more or fewer items
	self *Value     // of a method
	code *code      // of a Function, a Class or a Module
	env  *scope     // in which a Function is defined
	file *file      // of code
	base []*Value   // of a Class
	held []*options // of a parser: the options that it declares
}

// Source is where a value was stated, and how much that counts.
type Source struct {
	At   string // file:line
	Key  string // of the option or the setting
	Rank int
}

// Ranks of sources, the least first.
const (
	Constant = iota // of code
	Declared        // the default of an option
	Configured
	Commanded
)

// code is a statement with a body.
type code struct {
	s      *python.Statement
	start  int // of the body, in file.all
	end    int
	lambda *python.Expr
	class  *Value // of a method
}

// file is a file of Python that is read.
type file struct {
	name string
	all  []python.Statement
	ends []int // of the body of each statement
	main bool
	star bool // it imports all names of a module that is outside of the folder
}

// options are what an option of a command is declared as.
type options struct {
	dest string
	def  *Value
}

// scope has the variables of a function, a class or a module.
type scope struct {
	vars   map[string]*Value
	outer  *scope
	file   *file
	self   *Value
	class  *Value
	result []*Value // what is returned where that is not sure
	branch bool     // it is that of a branch that may not be taken
}

func text(s string) *Value { return &Value{Kind: String, Text: s} }

func boolean(b bool) *Value { return &Value{Kind: Bool, Text: strconv.FormatBool(b)} }

// parsed returns the value that the text of an option means.
func parsed(s string) *Value {
	switch s {
	case "True", "true":
		return boolean(true)
	case "False", "false":
		return boolean(false)
	case "None", "null":
		return &Value{}
	}
	if _, ok := number(s); ok {
		return &Value{Kind: Number, Text: s}
	}
	return text(s)
}

func number(s string) (float64, bool) {
	s = strings.ReplaceAll(s, "_", "")
	if s == "" || !(s[0] >= '0' && s[0] <= '9' || s[0] == '-' || s[0] == '.' || s[0] == '+') {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil
}

// Float returns the number that v is.
func (v *Value) Float() (float64, bool) {
	if v == nil || v.Kind != Number {
		return 0, false
	}
	return number(v.Text)
}

// Scalar is whether v is a text, a number, a truth value or None.
func (v *Value) Scalar() bool { return v != nil && v.Kind <= String }

// put sets a field.
func (v *Value) put(key string, f *Value) {
	if v.Fields == nil {
		v.Fields = map[string]*Value{}
	}
	if _, ok := v.Fields[key]; !ok {
		v.Keys = append(v.Keys, key)
	}
	v.Fields[key] = f
}

// Maker returns the name of what made an object, with dots where it is outside of the folder, or nothing.
func (v *Value) Maker() string {
	if v == nil || v.Kind != Object || v.Of == nil {
		return ""
	}
	switch of := v.Of; of.Kind {
	case Class, Function, External:
		return of.Text
	case Object:
		return "." + v.Text
	}
	return ""
}

// Folder is whether the class of an object is one of the folder.
func (v *Value) Folder() bool {
	return v != nil && v.Kind == Object && v.Of != nil && v.Of.Kind == Class
}

// Bases returns the names of what the class of an object is based on, those of the folder with theirs.
func (v *Value) Bases() []string {
	if v != nil && v.Kind == Object {
		v = v.Of
	}
	var all []string
	for c, n := []*Value{v}, 0; len(c) > 0 && n < 20; n++ {
		if c[0] != nil && (c[0].Kind == Class || c[0].Kind == External) {
			if n > 0 {
				all = append(all, c[0].Text)
			}
			c = append(c, c[0].base...)
		}
		c = c[1:]
	}
	return all
}
