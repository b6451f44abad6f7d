// The kernels of matrix_scan.h for the CPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/matrix_scan.h"
#include "torch_lod/each_level.h"

namespace lod::kernels {

void matrix_scan_forward(const CpuExec& exec, DType dtype, const MatrixScanForward& a) {
  LOD_PICK(matrix_scan_forward)(exec, dtype, a);
}
void matrix_scan_backward(const CpuExec& exec, DType dtype, const MatrixScanBackward& a) {
  LOD_PICK(matrix_scan_backward)(exec, dtype, a);
}

}  // namespace lod::kernels
