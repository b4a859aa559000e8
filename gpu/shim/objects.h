// Copyright The Muster Authors. SPDX-License-Identifier: Apache-2.0

// The live objects of the process: what it has made by the driver and has not
// destroyed, in the order in which it made them. This is all that a replay needs
// (replay.h). Nothing here calls the driver.
//
// A handle that the program has is the driver's own until a replay makes the
// object again; from then on object_now gives the driver's for the program's.
#ifndef MUSTER_OBJECTS_H
#define MUSTER_OBJECTS_H

#include "driver.h"

enum object_kind { OBJECT_STREAM = 1, OBJECT_EVENT, OBJECT_MODULE, OBJECT_FUNCTION };
enum { function_attributes = 16 };

// A variable of a module: its bytes are kept while the module is not loaded.
struct variable {
	char *name;
	size_t size;
	void *bytes;
};

struct object {
	enum object_kind kind;
	uint64_t app;          // the handle that the program has
	_Atomic uint64_t real; // the driver's; 0: not made now
	CUdevice device;       // in whose primary context it is
	unsigned flags;        // of streams and events
	int priority;          // of a stream

	// An event that was recorded before the last replay: how many ms before that, and
	// whether it was recorded again since. kept is the next one's before, until then.
	double before, kept;
	int recorded;
	_Atomic int again;

	// A module: its image, the options of the compiler, and its variables.
	void *image;
	int *options;
	void **values;
	unsigned option_count;
	struct variable *variables;
	size_t variable_count;
	char *refusal;             // why it cannot be replayed; NULL: it can
	struct object *functions;  // of the module

	// A function: its module, its name and what was set.
	struct object *module, *sibling;
	char *name;
	unsigned set; // a bit for each of the attributes
	int attributes[function_attributes];
	int cache; // cuFuncSetCacheConfig; -1: not called

	struct object *_Atomic next; // of the same bucket, or that is not used
	struct object *older, *newer;
};

// objects_lock guards all but object_now.
void objects_lock(void);
void objects_unlock(void);

// object_add makes an object for a handle that the driver gave. Its app is what the
// program is to have: the same, unless another live object of the kind has that.
// NULL: no memory.
struct object *object_add(enum object_kind kind, uint64_t real);

// object_drop forgets an object, and of a module its functions.
void object_drop(struct object *o);

// object_find gives the object of a handle of the program's, or NULL.
struct object *object_find(enum object_kind kind, uint64_t app);

// object_now gives the driver's handle for the program's; what is not known stays as it is. It takes no lock.
uint64_t object_now(enum object_kind kind, uint64_t app);

// object_then gives the program's handle for the driver's; it searches all.
uint64_t object_then(enum object_kind kind, uint64_t real);

// object_first is the oldest, from which newer leads to all others; object_last the newest.
struct object *object_first(void);
struct object *object_last(void);

// object_count is how many there are: the length of the log.
uint32_t object_count(void);

#endif
