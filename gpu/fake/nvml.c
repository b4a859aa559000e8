// Copyright The Muster Authors. SPDX-License-Identifier: Apache-2.0

// A management library (libnvidia-ml.so.1) whose GPUs are lines of a file, for
// tests and to try muster agent without a GPU. The file, in the environment's
// MUSTER_FAKE_NVML, is read at nvmlInit. Its lines:
//
//	gpu KEY=VALUE...  a GPU: uuid, pci, name (_ for a space), memory, used, busy, celsius, corrected, uncorrected,
//	                  pending, failed (rows to be remapped), links (a letter for each: s to a switch, g to a
//	                  GPU, d down), code (every call for it returns this error)
//	init CODE         nvmlInit returns this error
//	hang              nvmlInit never returns
//
// What a gpu line does not say is what a healthy H200 has.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { max_gpus = 64 };
enum { OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_LOADED = 9, LOST = 15, RESET_REQUIRED = 16, UNKNOWN = 999 };

typedef struct device {
	char uuid[80], pci[32], name[80], links[32];
	unsigned long long memory, used, corrected, uncorrected;
	unsigned busy, celsius, pending, failed, mig;
	int code;
} *nvml_device;

struct pci {
	char legacy_id[16];
	unsigned domain, bus, device, device_id, subsystem_id;
	char id[32];
};

static struct device gpus[max_gpus];
static unsigned gpu_count;

static void read_gpu(char *line) {
	if (gpu_count == max_gpus)
		return;
	struct device *d = &gpus[gpu_count];
	*d = (struct device){.name = "NVIDIA H200", .memory = 150754820096ull, .celsius = 30};
	snprintf(d->uuid, sizeof d->uuid, "GPU-%08x", gpu_count);
	snprintf(d->pci, sizeof d->pci, "00000000:%02X:00.0", 0x10 + gpu_count);
	gpu_count++;
	for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n")) {
		char *value = strchr(word, '=');
		if (!value)
			continue;
		*value++ = 0;
		unsigned long long n = strtoull(value, NULL, 10);
#define TEXT(field) else if (!strcmp(word, #field)) snprintf(d->field, sizeof d->field, "%s", value)
#define NUMBER(field) else if (!strcmp(word, #field)) d->field = n
		if (0)
			;
		TEXT(uuid);
		TEXT(pci);
		TEXT(name);
		TEXT(links);
		NUMBER(memory);
		NUMBER(used);
		NUMBER(corrected);
		NUMBER(uncorrected);
		NUMBER(busy);
		NUMBER(celsius);
		NUMBER(pending);
		NUMBER(failed);
		NUMBER(mig);
		NUMBER(code);
		else {
			fprintf(stderr, "libnvidia-ml.so.1 for tests: no key %s\n", word);
			abort();
		}
	}
	for (char *c = d->name; *c; c++)
		if (*c == '_')
			*c = ' ';
}

EXPORT int nvmlInit_v2(void) {
	const char *path = getenv("MUSTER_FAKE_NVML");
	FILE *f = path ? fopen(path, "r") : NULL;
	char line[1024];
	int code = OK;
	if (!f)
		return NOT_LOADED;
	gpu_count = 0;
	while (fgets(line, sizeof line, f)) {
		if (!strncmp(line, "gpu", 3))
			read_gpu(line + 3);
		else if (!strncmp(line, "hang", 4))
			for (;;)
				pause();
		else
			sscanf(line, "init %d", &code);
	}
	fclose(f);
	return code;
}

EXPORT int nvmlShutdown(void) { return OK; }

EXPORT const char *nvmlErrorString(int code) {
	switch (code) {
	case OK: return "Success";
	case INVALID_ARGUMENT: return "Invalid Argument";
	case NOT_SUPPORTED: return "Not Supported";
	case NOT_LOADED: return "Driver Not Loaded";
	case LOST: return "GPU is lost";
	case RESET_REQUIRED: return "GPU requires reset";
	}
	return "Unknown Error";
}

EXPORT int nvmlSystemGetDriverVersion(char *s, unsigned n) { return snprintf(s, n, "580.65.06"), OK; }

EXPORT int nvmlDeviceGetCount_v2(unsigned *n) { return *n = gpu_count, OK; }

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned i, nvml_device *d) {
	if (i >= gpu_count)
		return INVALID_ARGUMENT;
	return *d = &gpus[i], gpus[i].code;
}

EXPORT int nvmlDeviceGetUUID(nvml_device d, char *s, unsigned n) { return snprintf(s, n, "%s", d->uuid), d->code; }

EXPORT int nvmlDeviceGetName(nvml_device d, char *s, unsigned n) { return snprintf(s, n, "%s", d->name), d->code; }

EXPORT int nvmlDeviceGetPciInfo_v3(nvml_device d, struct pci *p) {
	memset(p, 0, sizeof *p);
	return snprintf(p->id, sizeof p->id, "%s", d->pci), d->code;
}

EXPORT int nvmlDeviceGetMemoryInfo(nvml_device d, unsigned long long *m) {
	return m[0] = d->memory, m[1] = d->memory - d->used, m[2] = d->used, d->code;
}

EXPORT int nvmlDeviceGetUtilizationRates(nvml_device d, unsigned *u) { return u[0] = d->busy, u[1] = d->busy / 2, d->code; }

EXPORT int nvmlDeviceGetTemperature(nvml_device d, int sensor, unsigned *c) {
	return *c = d->celsius, sensor ? INVALID_ARGUMENT : d->code;
}

EXPORT int nvmlDeviceGetPowerUsage(nvml_device d, unsigned *mw) { return *mw = 100000 + 6000 * d->busy, d->code; }

EXPORT int nvmlDeviceGetTotalEccErrors(nvml_device d, int type, int counter, unsigned long long *n) {
	return *n = type ? d->uncorrected : d->corrected, counter ? INVALID_ARGUMENT : d->code;
}

EXPORT int nvmlDeviceGetRemappedRows(nvml_device d, unsigned *correctable, unsigned *uncorrectable, unsigned *pending, unsigned *failed) {
	*correctable = 0, *uncorrectable = d->pending;
	return *pending = d->pending, *failed = d->failed, d->code;
}

EXPORT int nvmlDeviceGetMigMode(nvml_device d, unsigned *now, unsigned *next) { return *now = *next = d->mig, d->code; }

static int link_of(nvml_device d, unsigned i) {
	if (i >= strlen(d->links))
		return INVALID_ARGUMENT;
	return d->code;
}

EXPORT int nvmlDeviceGetNvLinkState(nvml_device d, unsigned i, int *on) {
	int r = link_of(d, i);
	if (r == OK)
		*on = d->links[i] != 'd';
	return r;
}

EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(nvml_device d, unsigned i, int *type) {
	int r = link_of(d, i);
	if (r == OK)
		*type = d->links[i] == 's' ? 2 : d->links[i] == 'g' ? 0 : 255;
	return r;
}

// A link to a GPU leads to the next one in the file.
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml_device d, unsigned i, struct pci *p) {
	int r = link_of(d, i);
	memset(p, 0, sizeof *p);
	if (r == OK && d->links[i] == 's')
		snprintf(p->id, sizeof p->id, "00000000:C0:%02X.0", i);
	else if (r == OK)
		snprintf(p->id, sizeof p->id, "%s", gpus[(d - gpus + 1) % gpu_count].pci);
	return r;
}
