# SPDX-License-Identifier: Apache-2.0
"""`LoDTensor`, what a tensor knows about its rows, the dispatch of torch's functions, conversions and printing."""

from .lod_tensor import LoDTensor as LoDTensor
