// Stands in for torch's header: whether the current stream is being captured into a graph.
// SPDX-License-Identifier: Apache-2.0
#pragma once
namespace emulated {
bool is_capturing();
}
namespace c10::cuda {
enum class CaptureStatus { None, Active };
inline CaptureStatus currentStreamCaptureStatusMayInitCtx() {
  return emulated::is_capturing() ? CaptureStatus::Active : CaptureStatus::None;
}
}  // namespace c10::cuda
