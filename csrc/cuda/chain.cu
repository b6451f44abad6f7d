// The kernels of chain.h for the GPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/chain.h"
#include "torch_lod/each_level.h"
