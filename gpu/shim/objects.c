// Copyright The Muster Authors. SPDX-License-Identifier: Apache-2.0

#include "objects.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { buckets = 1 << 14 };

// The objects by kind and handle of the program's. object_now reads the chains
// without the lock: changes goes up before and after each change, and who finds that
// it was odd or went up reads again. The memory of an object is used for another
// one and never freed, so that such a reader reads objects, if wrong ones.
static struct object *_Atomic table[buckets];
static _Atomic uint64_t changes;
static struct object *oldest, *newest, *unused;
static uint32_t count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void objects_lock(void) { pthread_mutex_lock(&lock); }
void objects_unlock(void) { pthread_mutex_unlock(&lock); }

static size_t bucket(enum object_kind kind, uint64_t app) {
	uint64_t h = (app ^ (uint64_t)kind << 60) * 0x9e3779b97f4a7c15ull;
	return h >> 50;
}

struct object *object_find(enum object_kind kind, uint64_t app) {
	struct object *o = table[bucket(kind, app)];
	while (o && (o->kind != kind || o->app != app))
		o = o->next;
	return o;
}

uint64_t object_now(enum object_kind kind, uint64_t app) {
	size_t b = bucket(kind, app);
	for (;;) {
		uint64_t before = atomic_load_explicit(&changes, memory_order_acquire), found = app;
		if (before & 1)
			continue;
		struct object *o = atomic_load_explicit(&table[b], memory_order_acquire);
		// A chain that changes while it is read may lead in a circle.
		while (o && atomic_load_explicit(&changes, memory_order_acquire) == before) {
			if (o->kind == kind && o->app == app) {
				found = atomic_load_explicit(&o->real, memory_order_relaxed);
				break;
			}
			o = atomic_load_explicit(&o->next, memory_order_acquire);
		}
		atomic_thread_fence(memory_order_acquire);
		if (atomic_load_explicit(&changes, memory_order_relaxed) == before)
			return found;
	}
}

uint64_t object_then(enum object_kind kind, uint64_t real) {
	for (struct object *o = newest; o; o = o->older)
		if (o->kind == kind && o->real == real)
			return o->app;
	return real;
}

struct object *object_add(enum object_kind kind, uint64_t real) {
	// Until handles differ, an object that has this one is gone: the driver ended it with something else.
	struct object *same = object_find(kind, real);
	if (same && same->real == real)
		object_drop(same);
	// No driver gives such an address: it is not canonical.
	static uint64_t chosen = 0x6d75000000000000;
	struct object *o = unused;
	if (o)
		unused = o->next;
	else if (!(o = calloc(1, sizeof *o)))
		return NULL;
	uint64_t app = real;
	if (object_find(kind, app))
		app = chosen += 16;
	size_t b = bucket(kind, app);
	atomic_fetch_add(&changes, 1);
	memset((char *)o, 0, sizeof *o);
	o->kind = kind;
	o->app = app;
	o->real = real;
	o->cache = -1;
	o->next = table[b];
	table[b] = o;
	atomic_fetch_add(&changes, 1);
	o->older = newest;
	*(newest ? &newest->newer : &oldest) = o;
	newest = o;
	count++;
	return o;
}

static void free_parts(struct object *o) {
	for (size_t i = 0; i < o->variable_count; i++) {
		free(o->variables[i].name);
		free(o->variables[i].bytes);
	}
	free(o->variables);
	free(o->image);
	free(o->options);
	free(o->values);
	free(o->refusal);
	free(o->name);
}

void object_drop(struct object *o) {
	while (o->functions) {
		struct object *f = o->functions;
		o->functions = f->sibling;
		object_drop(f);
	}
	if (o->module) {
		struct object **f = &o->module->functions;
		while (*f && *f != o)
			f = &(*f)->sibling;
		if (*f)
			*f = o->sibling;
	}
	free_parts(o);
	*(o->older ? &o->older->newer : &oldest) = o->newer;
	*(o->newer ? &o->newer->older : &newest) = o->older;
	struct object *_Atomic *at = &table[bucket(o->kind, o->app)];
	while (*at != o)
		at = &(*at)->next;
	atomic_fetch_add(&changes, 1);
	*at = o->next;
	o->kind = 0;
	o->next = unused;
	atomic_fetch_add(&changes, 1);
	unused = o;
	count--;
}

struct object *object_first(void) { return oldest; }
struct object *object_last(void) { return newest; }
uint32_t object_count(void) { return count; }
