// Gradients of gradients for operators whose backward is a kernel of its own: through their composed forms.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_lod/binding.h"

#include <torch/csrc/autograd/autograd.h>

namespace lod {

inline OptionalTensor optional(const Tensor& t) { return t.defined() ? OptionalTensor(t) : std::nullopt; }

// Gradients that can themselves be differentiated: run the composed form on aliases of the inputs (so that inputs made from
// one another stay apart) and let autograd record its own backward.
template <class Compose>
variable_list differentiable(const variable_list& inputs, const variable_list& grads, const Compose& compose) {
  variable_list aliases, wanted, results(inputs.size());
  for (const Tensor& t : inputs) {
    aliases.push_back(t.defined() ? t.view_symint(t.sym_sizes()) : t);
    if (t.defined() && t.requires_grad()) wanted.push_back(aliases.back());
  }
  variable_list outputs, given;
  const variable_list all = compose(aliases);
  for (size_t i = 0; i < all.size(); ++i)
    if (grads[i].defined() && all[i].requires_grad()) outputs.push_back(all[i]), given.push_back(grads[i]);
  if (outputs.empty()) return results;  // no rows: nothing depends on anything
  const auto found = torch::autograd::grad(outputs, wanted, given, /*retain_graph=*/true, /*create_graph=*/true, /*allow_unused=*/true);
  for (size_t i = 0, k = 0; i < inputs.size(); ++i)
    if (inputs[i].defined() && inputs[i].requires_grad()) results[i] = found[k++];
  return results;
}

// The backwards keep no graph: gradients of gradients go through the composed forms.
inline void without_gradient(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  for (const c10::IValue& value : torch::jit::last(*stack, op.schema().arguments().size()))
    TORCH_CHECK_NOT_IMPLEMENTED(!value.isTensor() || !tracked(value.toTensor()), op.schema().name(),
                                ": has no gradient of its own; differentiate the forward operator twice instead");
  const at::AutoDispatchBelowADInplaceOrView guard;
  op.callBoxed(*stack);
}

}  // namespace lod
