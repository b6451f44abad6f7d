# SPDX-License-Identifier: Apache-2.0
"""Lets compiled operators answer Ctrl-C: between pieces of long work they call `torch_lod_signals::ask`."""

import ctypes

import torch

#: Calls the handlers of the signals that have arrived, in the main thread; raises what a handler raises.
_check_signals = ctypes.pythonapi.PyErr_CheckSignals


def _ask() -> None:
    _check_signals()


#: Keeps the registration alive.
_library = torch.library.Library("torch_lod_signals", "DEF")
_library.define("ask() -> ()")
_library.impl("ask", _ask, "CompositeExplicitAutograd")
