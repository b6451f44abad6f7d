// Stands in for torch's header: a launch on the emulated device has run, or has raised, when it returns.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#define C10_CUDA_KERNEL_LAUNCH_CHECK() ((void)0)
