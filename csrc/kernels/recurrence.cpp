// The kernels of recurrence.h for the CPU. SPDX-License-Identifier: Apache-2.0
#define LOD_KERNELS "kernels/recurrence.h"
#include "torch_lod/each_level.h"

namespace lod::kernels {

void previous_rows(const CpuExec& exec, const PreviousRows& a) {
  LOD_PICK(previous_rows)(exec, a);
}
void lstm_forward(const CpuExec& exec, DType dtype, const LstmForward& a) {
  LOD_PICK(lstm_forward)(exec, dtype, a);
}
void lstm_backward(const CpuExec& exec, DType dtype, const LstmBackward& a) {
  LOD_PICK(lstm_backward)(exec, dtype, a);
}
void gru_forward(const CpuExec& exec, DType dtype, const GruForward& a) {
  LOD_PICK(gru_forward)(exec, dtype, a);
}
void gru_backward(const CpuExec& exec, DType dtype, const GruBackward& a) {
  LOD_PICK(gru_backward)(exec, dtype, a);
}
void rnn_forward(const CpuExec& exec, DType dtype, const RnnForward& a) {
  LOD_PICK(rnn_forward)(exec, dtype, a);
}
void rnn_backward(const CpuExec& exec, DType dtype, const RnnBackward& a) {
  LOD_PICK(rnn_backward)(exec, dtype, a);
}

}  // namespace lod::kernels
