// The kernels of scan.h for the GPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/scan.h"
#include "torch_lod/each_level.h"
