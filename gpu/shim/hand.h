// Copyright The Muster Authors. SPDX-License-Identifier: Apache-2.0

// How a process hands its GPU memory to its ghost, gpu/call/ghost.c, and takes
// it back: by connections to the socket PID.ghost beside its control page. Each
// message is one packet.
//
//	hand over: GIVE, BLOCKS..., RANGES..., END -> HAVE, or NO
//	take back: TAKE -> BLOCKS..., END, or NO; then HAVE
//
// Whoever has not received HAVE or END still holds what it held.
#ifndef MUSTER_HAND_H
#define MUSTER_HAND_H

#include "page.h"

enum { HAND_GIVE = 1, HAND_BLOCKS, HAND_RANGES, HAND_END, HAND_HAVE, HAND_NO, HAND_TAKE, HAND_DROP };
enum { hand_most = 64 }; // blocks or ranges in a message

// A block is physical memory, and where the process has it. A descriptor holds
// the memory, also without a mapping or a handle of the driver's.
struct hand_block {
	uint64_t address, size;
	unsigned char gpu[16]; // the ID of its GPU
	int fd;                // in this process; the kernel gives the receiver its own
	int none;
};

struct hand_message {
	uint32_t kind, count; // count: of the blocks or ranges
	uint64_t value;       // GIVE: the size of PID.data; END: the blocks of all messages; NO: the result
	union {
		struct hand_block block[hand_most];
		struct data_entry range[hand_most];
	};
};

// hand_connect and hand_listen return the socket of a path of any length; -1: errno says why.
int hand_connect(const char *path);
int hand_listen(const char *path);

// hand_send sends a message, with the descriptors of its blocks; 0: the other side is gone.
int hand_send(int socket, const struct hand_message *m);

// hand_tell sends a message of one value.
int hand_tell(int socket, uint32_t kind, uint64_t value);

// hand_receive receives a message, within the time (-1: any); 0: none came, the
// other side is gone, or it was not whole, and then no descriptor is open.
int hand_receive(int socket, struct hand_message *m, int milliseconds);

#endif
