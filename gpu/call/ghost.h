// Copyright The Muster Authors. SPDX-License-Identifier: Apache-2.0

// The ghost of a process: it holds the GPU memory that the process has handed
// over (gpu/shim/hand.h), while that is an ordinary process which can be dumped.
// It gives the memory back, or writes it to PID.data.
//
// The memory is that of descriptors, and a second process has the same ones: the
// keeper, which never opens the driver. So the memory outlives either of the two:
// where the ghost is killed, the keeper gives it back.
#ifndef MUSTER_GHOST_H
#define MUSTER_GHOST_H

#include "../shim/driver.h"

// ghost_open finds the driver's functions.
void ghost_open(void *libcuda);

// ghost_wait awaits the hand-over of a process. Like ghost_copy it returns 0, a
// CUresult, or RESULT_...; of RESULT_FILE errnum has errno.
uint32_t ghost_wait(const char *folder, int pid, int *errnum);

// ghost_copy writes what the process has handed over to PID.data. The process is
// saved then, and the memory is the GPU's again. It ends early if the process takes it back.
uint32_t ghost_copy(int pid, int *errnum);

// ghost_stop ends the copies under way.
void ghost_stop(void);

// ghost_end lets all processes take their memory back, and returns when the last one has.
void ghost_end(void);

// ghost_keep is the keeper.
int ghost_keep(const char *folder, int pid);

#endif
