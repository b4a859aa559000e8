// Copyright The Muster Authors. SPDX-License-Identifier: Apache-2.0

// This program asks NVIDIA's management library (NVML) once for the GPUs of
// this machine, and prints what it says as one line of JSON. agent/hardware
// starts it for each reading. It is a program of its own, so that muster
// itself is linked with no library, and so that a driver that hangs or crashes
// takes only this program with it (docs/adr/0059).
//
//	muster-gpu-nvml [LIBNVIDIA-ML]
//
// What a GPU or a driver does not tell is left out. {"missing":…}: there is no
// such library. {"code":…,"error":…} instead of the GPUs, or in one of them:
// the error that NVML returned.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The parts of nvml.h that are used. They are stable: NVML adds functions with
// another suffix where a structure changes.
typedef struct device *nvml_device;
struct pci {
	char legacy_id[16];
	unsigned domain, bus, device, device_id, subsystem_id;
	char id[32];
};
struct memory {
	unsigned long long total, free, used;
};
struct utilization {
	unsigned gpu, memory;
};
enum { OK = 0, IS_LOST = 15, RESET_REQUIRED = 16, UNKNOWN = 999 };
enum { max_gpus = 64, max_links = 18, text_size = 96 };
enum { CORRECTED, UNCORRECTED };        // kinds of errors of memory
enum { VOLATILE };                      // counters since the driver was loaded
enum { LINK_TO_GPU = 0, LINK_TO_SWITCH = 2 };

static struct {
	const char *(*error_string)(int);
	int (*init)(void), (*shutdown)(void), (*driver)(char *, unsigned), (*count)(unsigned *);
	int (*handle)(unsigned, nvml_device *), (*uuid)(nvml_device, char *, unsigned), (*name)(nvml_device, char *, unsigned);
	int (*pci)(nvml_device, struct pci *), (*memory)(nvml_device, struct memory *);
	int (*utilization)(nvml_device, struct utilization *), (*temperature)(nvml_device, int, unsigned *), (*power)(nvml_device, unsigned *);
	int (*ecc)(nvml_device, int, int, unsigned long long *);
	int (*rows)(nvml_device, unsigned *, unsigned *, unsigned *, unsigned *);
	int (*mig)(nvml_device, unsigned *, unsigned *);
	int (*link_state)(nvml_device, unsigned, int *), (*link_type)(nvml_device, unsigned, int *), (*link_pci)(nvml_device, unsigned, struct pci *);
} nvml;

// absent answers for a function that the library lacks, as NVML does for what a GPU lacks.
static int absent(void) { return 3; }

static void *function(void *library, const char *name) {
	void *f = dlsym(library, name);
	return f ? f : (void *)absent;
}

// text prints a string of JSON.
static void text(const char *s) {
	putchar('"');
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;
		if (c < 0x20 || c > 0x7e)
			printf("\\u%04x", c);
		else if (c == '"' || c == '\\')
			printf("\\%c", c);
		else
			putchar(c);
	}
	putchar('"');
}

// number prints a number unless it is too large for one: a driver that does not know it may set all bits.
static void number(const char *key, unsigned long long n, unsigned long long most) {
	if (n <= most)
		printf(",\"%s\":%llu", key, n);
}

static void error(int code) {
	const char *says = nvml.error_string == (void *)absent ? NULL : nvml.error_string(code);
	printf("\"code\":%d,\"error\":", code);
	text(says ? says : "unknown");
}

static void links(nvml_device d) {
	int some = 0, state, type;
	struct pci remote;
	for (unsigned i = 0; i < max_links; i++) {
		if (nvml.link_state(d, i, &state) != OK)
			continue;
		printf(some++ ? ",{" : ",\"links\":[{");
		printf("\"link\":%u,\"active\":%s", i, state ? "true" : "false");
		if (nvml.link_type(d, i, &type) == OK && (type == LINK_TO_GPU || type == LINK_TO_SWITCH))
			printf(",\"to\":\"%s\"", type == LINK_TO_GPU ? "gpu" : "switch");
		memset(&remote, 0, sizeof remote);
		if (state && nvml.link_pci(d, i, &remote) == OK) {
			remote.id[sizeof remote.id - 1] = 0;
			printf(",\"pci\":");
			text(remote.id);
		}
		putchar('}');
	}
	if (some)
		putchar(']');
}

// identity prints who a GPU is. It returns the error that says that the GPU does not answer.
static int identity(nvml_device d) {
	char s[text_size] = "";
	struct pci pci = {0};
	int r = nvml.uuid(d, s, sizeof s);
	if (r != OK)
		return r;
	printf(",\"uuid\":");
	text(s);
	if ((r = nvml.pci(d, &pci)) != OK)
		return r;
	pci.id[sizeof pci.id - 1] = 0;
	printf(",\"pci\":");
	text(pci.id);
	s[0] = 0;
	if (nvml.name(d, s, sizeof s) == OK) {
		printf(",\"name\":");
		text(s);
	}
	return OK;
}

// state prints what a GPU does. It returns the error that says that the GPU has failed; others only mean that it does not tell.
static int state(nvml_device d) {
	struct memory m;
	struct utilization u;
	unsigned a, b, pending, failed;
	unsigned long long n;
	int r = nvml.memory(d, &m);
	if (r == OK)
		number("memory", m.total, LLONG_MAX), number("memory_used", m.used, LLONG_MAX);
	else if (r == IS_LOST || r == RESET_REQUIRED || r == UNKNOWN)
		return r;
	if (nvml.utilization(d, &u) == OK)
		number("busy", u.gpu, INT_MAX), number("memory_busy", u.memory, INT_MAX);
	if (nvml.temperature(d, 0, &a) == OK)
		number("celsius", a, INT_MAX);
	if (nvml.power(d, &a) == OK)
		number("milliwatts", a, INT_MAX);
	if (nvml.ecc(d, CORRECTED, VOLATILE, &n) == OK)
		number("corrected", n, LLONG_MAX);
	if (nvml.ecc(d, UNCORRECTED, VOLATILE, &n) == OK)
		number("uncorrected", n, LLONG_MAX);
	if (nvml.rows(d, &a, &b, &pending, &failed) == OK)
		printf(",\"rows_pending\":%s,\"rows_failed\":%s", pending ? "true" : "false", failed ? "true" : "false");
	if (nvml.mig(d, &a, &b) == OK)
		printf(",\"mig\":%s", a ? "true" : "false");
	links(d);
	return OK;
}

static void gpu(unsigned i) {
	nvml_device d = NULL;
	printf("{\"index\":%u", i);
	int r = nvml.handle(i, &d);
	if (r == OK)
		r = identity(d);
	if (r == OK)
		r = state(d);
	if (r != OK) {
		putchar(',');
		error(r);
	}
	putchar('}');
}

static int open_library(const char *path) {
	void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!h)
		return 0;
#define F(field, symbol) *(void **)&nvml.field = function(h, "nvml" symbol)
	F(error_string, "ErrorString"), F(init, "Init_v2"), F(shutdown, "Shutdown");
	F(driver, "SystemGetDriverVersion"), F(count, "DeviceGetCount_v2"), F(handle, "DeviceGetHandleByIndex_v2");
	F(uuid, "DeviceGetUUID"), F(name, "DeviceGetName"), F(pci, "DeviceGetPciInfo_v3"), F(memory, "DeviceGetMemoryInfo");
	F(utilization, "DeviceGetUtilizationRates"), F(temperature, "DeviceGetTemperature"), F(power, "DeviceGetPowerUsage");
	F(ecc, "DeviceGetTotalEccErrors"), F(rows, "DeviceGetRemappedRows"), F(mig, "DeviceGetMigMode");
	F(link_state, "DeviceGetNvLinkState"), F(link_type, "DeviceGetNvLinkRemoteDeviceType"), F(link_pci, "DeviceGetNvLinkRemotePciInfo_v2");
	return 1;
}

int main(int argc, char **argv) {
	char driver[text_size] = "";
	unsigned count = 0;
	putchar('{');
	if (!open_library(argc > 1 ? argv[1] : "libnvidia-ml.so.1")) {
		printf("\"missing\":");
		text(dlerror());
		puts("}");
		return 0;
	}
	int r = nvml.init();
	if (r == OK)
		r = nvml.count(&count);
	if (r != OK) {
		error(r);
		puts("}");
		return 0;
	}
	nvml.driver(driver, sizeof driver);
	printf("\"driver\":");
	text(driver);
	printf(",\"gpus\":[");
	for (unsigned i = 0; i < count && i < max_gpus; i++) {
		if (i)
			putchar(',');
		gpu(i);
	}
	puts("]}");
	fflush(stdout);
	nvml.shutdown();
	return 0;
}
