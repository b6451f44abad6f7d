// The kernels of padded.h for the GPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/padded.h"
#include "torch_lod/each_level.h"
