// The kernels of segment.h for the GPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/segment.h"
#include "torch_lod/each_level.h"
