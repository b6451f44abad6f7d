// The kernels of ctc_beam.h for the CPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/ctc_beam.h"
#include "torch_lod/each_level.h"

namespace lod::kernels {

void ctc_beam(const CpuExec& exec, DType dtype, const CtcBeamArguments& a) {
  LOD_PICK(ctc_beam)(exec, dtype, a);
}

int64_t ctc_beam_width(int64_t beam, int64_t rows, int64_t classes) {
  return base::CtcBeam::width(beam, rows, classes);
}
int64_t ctc_beam_bytes(int64_t rows, int64_t beam, int64_t classes) {
  return base::CtcBeam::bytes(rows, beam, classes);
}

}  // namespace lod::kernels
