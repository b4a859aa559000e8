// Copyright The Muster Authors. SPDX-License-Identifier: Apache-2.0

// What the image of a module says about whether it can be loaded again elsewhere.
#ifndef MUSTER_PTX_H
#define MUSTER_PTX_H

#include "objects.h"

// image_size is how long an image is: text of PTX with its end, or what the header of a
// cubin or a fat binary says; 0: it is none of these.
size_t image_size(const void *image);

// image_read fills the variables and the refusal of a module from its image. A module is
// refused if its memory on the GPU may hold an address that another load of it
// would change: only its text shows that it does not. 0: no memory.
int image_read(struct object *module);

#endif
