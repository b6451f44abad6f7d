// The kernels of segment_norm.h for the GPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "segment_norm.h"
#include <torch_lod/each_level.h>
