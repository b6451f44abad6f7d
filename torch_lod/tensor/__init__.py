# SPDX-License-Identifier: Apache-2.0
"""`LoDTensor`, what a tensor knows about its rows, the rules of torch's functions, conversions, printing and hints."""

from .lod_tensor import LoDTensor as LoDTensor
