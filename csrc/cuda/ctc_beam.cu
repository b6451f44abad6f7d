// The kernels of ctc_beam.h for the GPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/ctc_beam.h"
#include "torch_lod/each_level.h"
