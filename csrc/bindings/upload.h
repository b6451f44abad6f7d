// What follows from structure on a GPU, without the host waiting: copies from pinned memory, once for all streams.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_lod/operator.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#ifdef LOD_CUDA
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#endif

namespace lod {

// Whether kernels for a device are being recorded into a graph, to run later and again.
inline bool capturing(c10::Device device) {
#ifdef LOD_CUDA
  const c10::cuda::CUDAGuard guard(device);
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
#else
  return false;
#endif
}

// What was enqueued for a device in one stream; other streams wait for it.
struct Enqueued final : Attached {
  Enqueued(int64_t kind, Tensor made)
      : kind(kind), there(std::move(made)), by(now(there.device())), done(by.device_type()) {
    done.record(by);
  }
  static c10::Stream now(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }
  // For kernels in the current stream. A graph begins after all that was enqueued before.
  const Tensor& here() const {
    const c10::Stream stream = now(there.device());
    if (stream != by && !capturing(there.device())) {
      done.block(stream);
      there.record_stream(stream);
    }
    return there;
  }
  const int64_t kind;
  const Tensor there;
  const c10::Stream by;
  c10::Event done;
};

inline Tensor new_pinned_longs(int64_t count) {
  return at::empty({count}, at::TensorOptions(at::kLong).pinned_memory(true));
}

// What make() says of structure on a device; kept with the mark of the structure, if it has one, under a number for its
// kind. What a graph makes when it runs is not there before, and is not kept.
template <class F>
Tensor kept(const Tensor& structure, c10::Device device, int64_t kind, const F& make) {
  const Known* mark = known(structure);
  if (mark) {
    const std::lock_guard guard(mark->lock);
    for (const auto& one : mark->kept) {
      const auto* found = static_cast<const Enqueued*>(one.get());
      if (found->kind == kind && found->there.device() == device) return found->here();
    }
  }
  const Tensor there = make();
  if (mark && !capturing(device)) {
    const std::lock_guard guard(mark->lock);
    mark->kept.push_back(std::make_unique<Enqueued>(kind, there));
  }
  return there;
}
// The same of `count` numbers that fill(to) writes on the host.
template <class F>
Tensor uploaded(const Tensor& structure, c10::Device device, int64_t kind, int64_t count, const F& fill) {
  return kept(structure, device, kind, [&] {
    const Tensor pinned = new_pinned_longs(count);
    fill(pinned.mutable_data_ptr<int64_t>());
    if (capturing(device)) {
      static std::mutex lock;
      const std::lock_guard guard(lock);
      static auto* const read_by_replays = new std::vector<Tensor>;  // for as long as the process lives
      read_by_replays->push_back(pinned);
    }
    return pinned.to(device, /*non_blocking=*/true);
  });
}

}  // namespace lod
