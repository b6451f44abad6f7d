// The kernels of scan.h for the GPU. SPDX-License-Identifier: Apache-2.0
#define LOD_LEVEL cuda
#include "core/device.h"
#include "core/launch.h"
#include "scan.h"
