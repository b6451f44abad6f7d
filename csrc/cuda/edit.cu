// The kernels of edit.h for the GPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "edit.h"
#include "torch_lod/each_level.h"
