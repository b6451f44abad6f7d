// The kernels of ctc.h for the GPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/ctc.h"
#include "torch_lod/each_level.h"
