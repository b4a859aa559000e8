// Copyright The Muster Authors. SPDX-License-Identifier: Apache-2.0

#define _GNU_SOURCE
#include "ptx.h"

#include <ctype.h>
#include <elf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { fat_magic = 0xba55ed50, wrapper_magic = 0x466243b1 };

static uint32_t first_word(const void *image) {
	uint32_t w;
	memcpy(&w, image, 4);
	return w;
}

static int is_text(const char *image) { return *image == '/' || *image == '.' || isspace((unsigned char)*image); }

size_t image_size(const void *image) {
	const char *at = image;
	if (is_text(at))
		return strlen(at) + 1;
	if (!memcmp(at, ELFMAG, SELFMAG)) {
		const Elf64_Ehdr *h = image;
		size_t sections = h->e_shoff + (size_t)h->e_shnum * h->e_shentsize, segments = h->e_phoff + (size_t)h->e_phnum * h->e_phentsize;
		return sections > segments ? sections : segments;
	}
	if (first_word(image) == fat_magic) {
		uint16_t header;
		uint64_t size;
		memcpy(&header, at + 6, 2);
		memcpy(&size, at + 8, 8);
		return header + size;
	}
	return 0;
}

// --- the text of a module

// A token is a word ([A-Za-z0-9_$%.]+), a string, or one other character.
struct reader {
	const char *at, *token;
	size_t length;
};

static int is_word(char c) { return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.'; }

static int next(struct reader *r) {
	for (;;) {
		r->at += strspn(r->at, " \t\r\n\v\f");
		if (!strncmp(r->at, "//", 2)) {
			r->at += strcspn(r->at, "\n");
		} else if (!strncmp(r->at, "/*", 2)) {
			const char *end = strstr(r->at + 2, "*/");
			r->at = end ? end + 2 : r->at + strlen(r->at);
		} else {
			break;
		}
	}
	r->token = r->at;
	if (!*r->at)
		return r->length = 0;
	if (*r->at == '"') {
		r->at++;
		r->at += strcspn(r->at, "\"");
		r->at += *r->at == '"';
	} else if (is_word(*r->at)) {
		while (is_word(*r->at))
			r->at++;
	} else {
		r->at++;
	}
	return (r->length = (size_t)(r->at - r->token)) != 0;
}

static int is(const struct reader *r, const char *text) { return r->length == strlen(text) && !memcmp(r->token, text, r->length); }
static int names(const struct reader *r) { return isalpha((unsigned char)*r->token) || *r->token == '_' || *r->token == '$' || *r->token == '%'; }

static void refuse(struct object *m, const char *format, ...) {
	if (m->refusal)
		return;
	va_list list;
	va_start(list, format);
	if (vasprintf(&m->refusal, format, list) < 0)
		m->refusal = strdup("there is no memory to say why");
	va_end(list);
}

// A name is a variable's or a function's of the module.
struct name {
	const char *at;
	size_t length;
};
struct names_of {
	struct name *all;
	size_t count, capacity;
};

static int add_name(struct names_of *n, const struct reader *r) {
	if (n->count == n->capacity) {
		size_t more = n->capacity ? 2 * n->capacity : 16;
		struct name *grown = realloc(n->all, more * sizeof *grown);
		if (!grown)
			return 0;
		n->all = grown, n->capacity = more;
	}
	n->all[n->count++] = (struct name){r->token, r->length};
	return 1;
}

static int compare(const void *a, const void *b) {
	const struct name *x = a, *y = b;
	int c = memcmp(x->at, y->at, x->length < y->length ? x->length : y->length);
	return c ? c : (int)x->length - (int)y->length;
}

static int has(const struct names_of *n, const struct reader *r) {
	struct name want = {r->token, r->length};
	return n->count && bsearch(&want, n->all, n->count, sizeof want, compare) != NULL;
}

static int add_variable(struct object *m, const struct reader *r) {
	struct variable *grown = realloc(m->variables, (m->variable_count + 1) * sizeof *grown);
	if (!grown)
		return 0;
	m->variables = grown;
	grown[m->variable_count] = (struct variable){.name = strndup(r->token, r->length)};
	return grown[m->variable_count++].name != NULL;
}

// harmless says whether code outside of the module keeps nothing on the GPU: what
// printf and assert write is read by the driver before the context ends.
static int harmless(const struct reader *r) { return is(r, "vprintf") || is(r, "__assertfail"); }

// declare reads the statements of a module, without the bodies of its functions:
// which variables in the GPU's memory there are, and which functions.
static int declare(struct object *m, struct names_of *names_all) {
	struct reader r = {.at = m->image};
	int depth = 0, parentheses = 0, brackets = 0, value = 0;
	int variable = 0, function = 0, external = 0, named = 0;
	while (next(&r)) {
		if (depth && !variable) { // a body
			depth += is(&r, "{") - is(&r, "}");
			continue;
		}
		if ((is(&r, ".global") || is(&r, ".const")) && !parentheses)
			variable = 1;
		else if (is(&r, ".entry") || is(&r, ".func"))
			function = 1;
		else if (is(&r, ".extern"))
			external = 1;
		else if (is(&r, ".alias"))
			refuse(m, "a module has functions with two names");
		else if (is(&r, ".managed"))
			refuse(m, "a module has managed memory");
		else if (is(&r, ".texref") || is(&r, ".surfref") || is(&r, ".samplerref"))
			refuse(m, "a module has textures or surfaces");
		else if (is(&r, "(") || is(&r, ")"))
			parentheses += is(&r, "(") ? 1 : -1;
		else if (is(&r, "[") || is(&r, "]"))
			brackets += is(&r, "[") ? 1 : -1;
		else if (is(&r, "="))
			value = 1;
		else if (is(&r, "{") || is(&r, "}"))
			depth += is(&r, "{") ? 1 : -1;
		else if (variable && is(&r, ",") && !depth && !value && !parentheses)
			refuse(m, "a module declares several variables at once");
		else if (variable && value && names(&r))
			refuse(m, "a variable of a module holds the address of %.*s", (int)r.length, r.token);
		else if ((variable || function) && !named && !parentheses && !brackets && names(&r)) {
			named = 1;
			if (external && !(function && harmless(&r)))
				refuse(m, "a module uses %.*s, which is not in it", (int)r.length, r.token);
			if (!add_name(names_all, &r) || (variable && !add_variable(m, &r)))
				return 0;
		}
		if ((is(&r, ";") && !depth) || (function && is(&r, "{"))) {
			variable = function = external = named = value = parentheses = brackets = 0;
		}
	}
	return 1;
}

// use reads the bodies: an address of a variable or a function may be used, and must
// not become a value, which could be stored.
static void use(struct object *m, const struct names_of *known) {
	struct reader r = {.at = m->image};
	int depth = 0, brackets = 0, call = 0, body = 0;
	while (next(&r)) {
		if (is(&r, ".entry") || is(&r, ".func"))
			body = 1;
		if (is(&r, "{") || is(&r, "}"))
			depth += is(&r, "{") ? 1 : -1;
		if (!depth && (is(&r, "}") || is(&r, ";")))
			body = 0;
		if (!depth || !body)
			continue;
		if (is(&r, "[") || is(&r, "]"))
			brackets += is(&r, "[") ? 1 : -1;
		else if (is(&r, ";"))
			call = brackets = 0;
		else if (is(&r, "call") || (r.length > 5 && !memcmp(r.token, "call.", 5)))
			call = 1;
		else if (is(&r, ".global") || is(&r, ".const"))
			refuse(m, "a function of a module has variables of its own");
		else if (!brackets && !call && names(&r) && has(known, &r))
			refuse(m, "a kernel uses the address of %.*s as a value, and another load may place that elsewhere", (int)r.length, r.token);
	}
}

int image_read(struct object *m) {
	const char *image = m->image;
	if (!is_text(image)) {
		refuse(m, first_word(image) == fat_magic ? "a module is a fat binary, in which variables and addresses cannot be seen" : "a module is machine code, in which variables and addresses cannot be seen");
		return 1;
	}
	struct names_of known = {0};
	int good = declare(m, &known);
	if (good && known.count)
		qsort(known.all, known.count, sizeof *known.all, compare);
	if (good)
		use(m, &known);
	free(known.all);
	return good;
}
