// Stands in for a header that the CPU build of torch does not ship, so that the GPU bindings can be checked without a GPU.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#define C10_CUDA_BUILD_SHARED_LIBS
