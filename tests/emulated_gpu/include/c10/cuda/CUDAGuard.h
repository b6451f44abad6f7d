// Stands in for torch's header: there is one emulated device.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <c10/core/Device.h>
namespace c10::cuda {
struct CUDAGuard {
  explicit CUDAGuard(c10::Device) {}
};
}  // namespace c10::cuda
