// Copyright The Muster Authors. SPDX-License-Identifier: Apache-2.0

// The control page: the file PID.page in $MUSTER_GPU_DIR through which
// another process (muster pause, the node agent) asks a process with the shim
// to pause. gpu/page.go reads the same layout. Whoever shares the page may be
// killed at any time: every field is a word that is written whole.
#ifndef MUSTER_PAGE_H
#define MUSTER_PAGE_H

#include <stdatomic.h>
#include <stdint.h>

#define PAGE_SIZE 4096
#define PAGE_MAGIC 0x5047554du // "MUGP"
#define PAGE_VERSION 1

// The gate. From outside 0 becomes 1 (close) and 1 becomes 0 (open, after opened
// has gone up); 2 is the shim's own: the memory is being copied or is gone.
// OP_RESTORE makes it 1 again.
enum { GATE_OPEN = 0, GATE_CLOSED = 1, GATE_SEALED = 2 };
enum { OP_SAVE = 1, OP_RESTORE = 2, OP_HAND = 3 };
enum { STATE_RUNNING = 0, STATE_SAVED = 1, STATE_HANDED = 2 }; // handed: a ghost has the memory (hand.h), and makes it saved
enum { RESULT_CANCELLED = 10001, RESULT_CORRUPT = 10002, RESULT_FILE = 10003, RESULT_LOST = 10004, RESULT_GHOST = 10005 };

struct page {
	uint32_t magic, version;
	uint32_t pid;
	_Atomic uint32_t gate;      // GATE_...: unless open, calls that use the GPU wait
	_Atomic uint32_t command;   // number of the last command. Written from outside.
	_Atomic uint32_t op;        // what that command asks for
	_Atomic uint32_t done;      // number of the last command that has ended
	_Atomic uint32_t result;    // how it ended: 0, a CUresult, or RESULT_...
	_Atomic uint32_t state;     // STATE_...
	_Atomic uint32_t in_flight; // calls that have passed the gate and have not returned
	_Atomic uint32_t untracked; // allocations that the shim does not own, and that a pause leaves on the GPU
	_Atomic uint32_t errnum;    // errno of RESULT_FILE
	_Atomic uint64_t lease;     // Unix time in ms after which a pause ends by itself; 0: never
	_Atomic uint64_t started;   // start time of the process, field 22 of /proc/PID/stat
	_Atomic uint64_t reserved;  // bytes of GPU memory that the shim holds for the process
	_Atomic uint64_t active;    // bytes of it that are in use, as of the last save
	_Atomic uint64_t stuck;     // calls that waited at the gate since the start
	_Atomic uint32_t opened;    // goes up before every opening of the gate
	_Atomic uint32_t saves;     // goes up with every save that is complete: PID.data is of the last one
	uint64_t pidns;             // inode of the PID namespace in which the process has this ID
	_Atomic uint64_t table;     // sum of the entries of PID.data where a ghost wrote it; else 0
};

_Static_assert(sizeof(struct page) == 112, "gpu/page.go has the same offsets");

// What a replay says, behind the page's own words.
#define PAGE_REPLAY 2048
enum { OP_EXAMINE = 16, OP_RELEASE = 17, OP_REPLAY = 18 };
enum { STATE_RELEASED = 16 };   // saved, and nothing else of the process is on the GPU
enum { RESULT_REFUSED = 10016 }; // refusal says why it cannot be replayed
struct page_replay {
	_Atomic uint32_t objects; // that are live: what a replay would make
	char refusal[508];        // text, with its end
};

// The file PID.data: what was saved. A header, then entries, then the bytes of
// each entry at its offset.
#define DATA_MAGIC 0x31415441445547ull // "GUDATA1"
struct data_header {
	uint64_t magic, entries, size; // size of the whole file in bytes
};
struct data_entry {
	uint64_t address, size, offset, sum;
};

#endif
