// Copyright The Muster Authors. SPDX-License-Identifier: Apache-2.0

#include "replay.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { devices = 64 };

struct replay_driver replay_driver;
_Atomic uint32_t replays;
_Atomic uint32_t replay_pinned;
static _Atomic(const char *) barred;

void replay_bar(const char *name) {
	const char *none = NULL;
	if (!barred)
		atomic_compare_exchange_strong(&barred, &none, name);
}

int replay_barred(void) { return barred != NULL; }

// --- primary contexts

static struct context {
	CUcontext app, now; // what the program has; what the driver has, NULL while there is none
	int retained;
	unsigned flags;
	CUevent mark; // recorded at the last replay
} contexts[devices];

void replay_retained(CUdevice device, CUcontext now) {
	if (device < 0 || device >= devices)
		return replay_bar("cuDevicePrimaryCtxRetain of a device beyond the 64th");
	struct context *c = &contexts[device];
	objects_lock();
	if (!c->retained++) {
		c->app = c->now = now;
		for (int d = 0; d < devices; d++)
			if (d != device && contexts[d].app == now)
				replay_bar("cuDevicePrimaryCtxRetain, whose context another device had");
	}
	objects_unlock();
}

// A last release ends all that was made in the context.
void replay_released(CUdevice device) {
	if (device < 0 || device >= devices)
		return;
	struct context *c = &contexts[device];
	objects_lock();
	if (c->retained && !--c->retained) {
		struct object *older;
		for (struct object *o = object_last(); o; o = older) {
			older = o->older;
			if (o->device == device && o->kind != OBJECT_FUNCTION) { // with its module
				object_drop(o);
				older = object_last();
			}
		}
		*c = (struct context){0};
	}
	objects_unlock();
}

CUcontext replay_context(CUdevice device) { return device >= 0 && device < devices ? contexts[device].now : NULL; }

CUcontext replay_context_now(CUcontext app) {
	for (int d = 0; app && d < devices; d++)
		if (contexts[d].app == app)
			return contexts[d].now;
	return app;
}

CUcontext replay_context_then(CUcontext now) {
	for (int d = 0; now && d < devices; d++)
		if (contexts[d].now == now)
			return contexts[d].app;
	return now;
}

// --- registered host memory

static struct registered {
	void *at;
	size_t size;
	unsigned flags;
	CUdevice device;
} *registered;
static size_t registered_count, registered_capacity;

void replay_registered(void *at, size_t size, unsigned flags, CUdevice device) {
	objects_lock();
	if (registered_count == registered_capacity) {
		size_t more = registered_capacity ? 2 * registered_capacity : 16;
		struct registered *grown = realloc(registered, more * sizeof *grown);
		if (!grown) {
			replay_bar("cuMemHostRegister without memory to note it");
			objects_unlock();
			return;
		}
		registered = grown, registered_capacity = more;
	}
	registered[registered_count++] = (struct registered){at, size, flags, device};
	objects_unlock();
}

void replay_unregistered(void *at) {
	objects_lock();
	for (size_t i = 0; i < registered_count; i++)
		if (registered[i].at == at) {
			registered[i] = registered[--registered_count];
			break;
		}
	objects_unlock();
}

// --- times

CUresult replay_elapsed(CUresult (*elapsed)(float *, CUevent, CUevent), float *ms, CUevent from, CUevent to) {
	CUevent now[2] = {from, to};
	double before[2] = {0}; // how many ms before the replay
	int gone[2] = {0};
	CUevent mark = NULL;
	objects_lock();
	for (int i = 0; i < 2; i++) {
		struct object *o = object_find(OBJECT_EVENT, (uint64_t)now[i]);
		if (!o)
			continue;
		now[i] = (CUevent)o->real;
		gone[i] = o->recorded && !o->again;
		before[i] = o->before;
		mark = contexts[o->device].mark;
	}
	objects_unlock();
	if (!gone[0] && !gone[1])
		return elapsed(ms, now[0], now[1]);
	if (gone[0] && gone[1])
		return *ms = (float)(before[0] - before[1]), CUDA_SUCCESS;
	float since;
	CUresult r = elapsed(&since, mark, now[gone[0]]); // to the one that was recorded since
	if (!r)
		*ms = (float)(gone[0] ? before[0] + (double)since : -before[1] - (double)since);
	return r;
}

// keep_times notes for each event of a device how long before now it was recorded.
static CUresult keep_times(CUdevice d) {
	CUevent now;
	float ms;
	double since = 0;
	CUresult r = replay_driver.cuEventCreate(&now, 0);
	if (r)
		return r;
	if ((r = replay_driver.cuEventRecord(now, NULL)) || (r = replay_driver.cuCtxSynchronize()))
		goto out;
	if (contexts[d].mark) {
		if ((r = replay_driver.cuEventElapsedTime(&ms, contexts[d].mark, now)))
			goto out;
		since = (double)ms;
	}
	for (struct object *o = object_first(); o; o = o->newer) {
		if (o->kind != OBJECT_EVENT || o->device != d)
			continue;
		o->kept = o->recorded && !o->again ? o->before + since
			: !replay_driver.cuEventElapsedTime(&ms, (CUevent)o->real, now) ? (double)ms
			: NAN; // never recorded, or without times
	}
out:
	replay_driver.cuEventDestroy_v2(now);
	return r;
}

// --- variables

// keep_variables copies the variables of a module to the host; on the way back the other way.
static CUresult keep_variables(struct object *m, int back, char *why, size_t size) {
	for (size_t i = 0; i < m->variable_count; i++) {
		struct variable *v = &m->variables[i];
		CUdeviceptr at;
		size_t bytes;
		CUresult r = replay_driver.cuModuleGetGlobal_v2(&at, &bytes, (CUmodule)m->real, v->name);
		if (r) {
			snprintf(why, size, "the driver does not show the variable %s of a module", v->name);
			return r;
		}
		if (!back) {
			free(v->bytes);
			v->size = bytes;
			if (!(v->bytes = malloc(bytes ? bytes : 1)))
				return CUDA_ERROR_OUT_OF_MEMORY;
		} else if (bytes != v->size) {
			return CUDA_ERROR_INVALID_VALUE;
		}
		if ((r = back ? replay_driver.cuMemcpyHtoD_v2(at, v->bytes, bytes) : replay_driver.cuMemcpyDtoH_v2(v->bytes, at, bytes)))
			return r;
	}
	return CUDA_SUCCESS;
}

// --- refusal

int replay_refusal(char *why, size_t size, uint32_t untracked) {
	const char *name = barred;
	int refused = 1;
	objects_lock();
	if (name && !strcmp(name, "cuGetExportTable"))
		snprintf(why, size, "it uses the CUDA runtime or a library of it (cuBLAS, PyTorch), whose calls of the driver by cuGetExportTable cannot be seen");
	else if (name)
		snprintf(why, size, "it has called %s, which a replay does not know", name);
	else if (untracked)
		snprintf(why, size, "it has %u allocations that the library did not make", untracked);
	else if (replay_pinned)
		snprintf(why, size, "it has %u buffers of cuMemHostAlloc or cuMemAllocHost, which end with the context", replay_pinned);
	else
		refused = 0;
	for (struct object *o = object_first(); o && !refused; o = o->newer) {
		if (o->kind == OBJECT_EVENT && o->flags & 4)
			refused = snprintf(why, size, "it has an event that other processes may wait for") > 0;
		else if (o->refusal)
			refused = snprintf(why, size, "%s", o->refusal) > 0;
	}
	objects_unlock();
	return refused;
}

// --- the way out

// destroy is the way out without anything that can fail, and the way back's if that fails.
static void destroy(void) {
	for (struct object *o = object_last(); o; o = o->older) {
		if (!o->real)
			continue;
		replay_driver.cuCtxSetCurrent(contexts[o->device].now);
		if (o->kind == OBJECT_STREAM)
			replay_driver.cuStreamDestroy_v2((CUstream)o->real);
		else if (o->kind == OBJECT_EVENT)
			replay_driver.cuEventDestroy_v2((CUevent)o->real);
		else if (o->kind == OBJECT_MODULE)
			replay_driver.cuModuleUnload((CUmodule)o->real);
		o->real = 0;
	}
	for (int d = 0; d < devices; d++) {
		struct context *c = &contexts[d];
		if (!c->now)
			continue;
		replay_driver.cuCtxSetCurrent(c->now);
		if (c->mark)
			replay_driver.cuEventDestroy_v2(c->mark);
		c->mark = NULL;
		for (size_t i = 0; i < registered_count; i++)
			if (registered[i].device == d)
				replay_driver.cuMemHostUnregister(registered[i].at);
		replay_driver.cuCtxSetCurrent(NULL);
		for (int i = 0; i < c->retained; i++)
			replay_driver.cuDevicePrimaryCtxRelease_v2(d);
		c->now = NULL;
	}
}

uint32_t replay_release(char *why, size_t size, uint32_t untracked) {
	*why = 0;
	if (replay_refusal(why, size, untracked))
		return RESULT_REFUSED;
	objects_lock();
	CUresult r = CUDA_SUCCESS;
	for (int d = 0; d < devices && !r; d++) {
		struct context *c = &contexts[d];
		int active;
		if (!c->now)
			continue;
		r = replay_driver.cuDevicePrimaryCtxGetState(d, &c->flags, &active);
		if (!r)
			r = replay_driver.cuCtxSetCurrent(c->now);
		if (!r)
			r = replay_driver.cuCtxSynchronize();
		for (struct object *o = object_first(); o && !r; o = o->newer)
			if (o->kind == OBJECT_MODULE && o->device == d)
				r = keep_variables(o, 0, why, size);
	}
	for (int d = 0; d < devices && !r; d++)
		if (contexts[d].now && !(r = replay_driver.cuCtxSetCurrent(contexts[d].now)))
			r = keep_times(d);
	for (struct object *o = r ? NULL : object_first(); o; o = o->newer) {
		o->recorded = o->kind == OBJECT_EVENT && !isnan(o->kept);
		o->before = o->kept;
		o->again = 0;
	}
	if (!r)
		destroy();
	objects_unlock();
	return r && *why ? RESULT_REFUSED : (uint32_t)r;
}

// --- the way back

static CUresult make(struct object *o) {
	union {
		CUstream stream;
		CUevent event;
		CUmodule module;
		CUfunction function;
		uint64_t handle;
	} made = {0};
	CUresult r = CUDA_ERROR_INVALID_VALUE;
	char none[1];
	switch (o->kind) {
	case OBJECT_STREAM:
		r = replay_driver.cuStreamCreateWithPriority(&made.stream, o->flags, o->priority);
		break;
	case OBJECT_EVENT:
		r = replay_driver.cuEventCreate(&made.event, o->flags);
		break;
	case OBJECT_MODULE:
		if (!(r = replay_driver.cuModuleLoadDataEx(&made.module, o->image, o->option_count, o->options, o->values))) {
			o->real = made.handle;
			r = keep_variables(o, 1, none, 0);
		}
		break;
	case OBJECT_FUNCTION:
		r = replay_driver.cuModuleGetFunction(&made.function, (CUmodule)o->module->real, o->name);
		for (int i = 0; i < function_attributes && !r; i++)
			if (o->set & 1u << i)
				r = replay_driver.cuFuncSetAttribute(made.function, i, o->attributes[i]);
		if (!r && o->cache >= 0)
			r = replay_driver.cuFuncSetCacheConfig(made.function, o->cache);
		break;
	}
	if (!r)
		o->real = made.handle;
	return r;
}

CUresult replay_again(void) {
	CUresult r = CUDA_SUCCESS;
	objects_lock();
	for (int d = 0; d < devices && !r; d++) {
		struct context *c = &contexts[d];
		if (!c->retained)
			continue;
		replay_driver.cuDevicePrimaryCtxSetFlags_v2(d, c->flags); // it fails where they are the same and the context is active
		int wanted = c->retained;
		c->retained = 0; // those that destroy has to release
		while (!r && c->retained < wanted) {
			CUcontext now;
			if (!(r = replay_driver.cuDevicePrimaryCtxRetain(&now, d)))
				c->now = now, c->retained++;
		}
		if (!r)
			r = replay_driver.cuCtxSetCurrent(c->now);
		for (size_t i = 0; i < registered_count && !r; i++)
			if (registered[i].device == d)
				r = replay_driver.cuMemHostRegister_v2(registered[i].at, registered[i].size, registered[i].flags);
		if (!r && !(r = replay_driver.cuEventCreate(&c->mark, 0)))
			r = replay_driver.cuEventRecord(c->mark, NULL);
		if (r)
			destroy();
		c->retained = wanted;
	}
	CUdevice current = -1;
	for (struct object *o = object_first(); o && !r; o = o->newer) {
		if (o->device != current && !(r = replay_driver.cuCtxSetCurrent(contexts[o->device].now)))
			current = o->device;
		if (!r)
			r = make(o);
		if (r)
			destroy();
	}
	if (!r)
		atomic_fetch_add(&replays, 1);
	objects_unlock();
	return r;
}
