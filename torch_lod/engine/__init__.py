# SPDX-License-Identifier: Apache-2.0
"""Attention and recurrent layers on LoDTensors: the implementation that the operators, tl.nn and the drop-in share."""
