// The kernels of ctc_beam.h for the GPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "ctc_beam.h"
#include "torch_lod/each_level.h"
