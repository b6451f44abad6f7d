// What bindings read of torch: setup.py compiles it once for all of them, and each is compiled as if it began with it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
