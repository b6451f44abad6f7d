// The kernels of attention.h for the GPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/attention.h"
#include "torch_lod/each_level.h"
