# SPDX-License-Identifier: Apache-2.0
"""Whose code called, by the files of Python's frames: it says where something happened, and passes on what users' functions raise.
What is computed does not depend on it."""

import os
import sys
from collections.abc import Iterator
from types import FrameType, TracebackType

import torch

#: Where frames of ours and of torch come from: the names that code was compiled under.
HOUSE, TORCH = OURS = tuple(
    os.path.dirname(file) + os.sep for file in ((lambda: None).__code__.co_filename, torch.__file__)
)
_MODE = "__torch_function__"


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename


def is_ours(frame: FrameType) -> bool:
    return _file(frame).startswith(HOUSE)


def is_torchs(frame: FrameType) -> bool:
    return _file(frame).startswith(TORCH)


def caller() -> FrameType:
    """The frame that called the function that asks."""
    return sys._getframe(2)


def asking(frame: FrameType, through: tuple[str, ...]) -> FrameType:
    """The frame that called, beyond function modes, which hand calls on through functions of their own. `through`: files of the
    package that only pass calls on."""
    at: FrameType | None = frame
    while at is not None and (not is_ours(at) or _file(at).startswith(through)):
        if at.f_code.co_name == _MODE and at.f_back is not None:
            return asking(at.f_back, through)
        at = at.f_back
    return frame


def behind(frame: FrameType | None, through: tuple[str, ...]) -> FrameType | None:
    """The innermost frame that is not of the files `through`."""
    while frame is not None and _file(frame).startswith(through):
        frame = frame.f_back
    return frame


def user(frame: FrameType) -> FrameType:
    """The innermost frame that is neither torch's nor ours; the outermost one if there is none."""
    while frame.f_back is not None and _file(frame).startswith(OURS):
        frame = frame.f_back
    return frame


def importer() -> FrameType:
    """The frame that imports the package, however many of its modules are in between."""
    frame = sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("torch_lod", "importlib"):
        frame = frame.f_back
    return frame


def users(trace: TracebackType | None) -> Iterator[TracebackType]:
    """The entries of a traceback that are neither torch's nor ours nor of a function mode that handed a call on."""
    in_mode = False
    while trace is not None:
        ours = _file(trace.tb_frame).startswith(OURS)
        in_mode = trace.tb_frame.f_code.co_name == _MODE or (in_mode and not ours)
        if not ours and not in_mode:
            yield trace
        trace = trace.tb_next


def deeper(error: Exception) -> TracebackType | None:
    """The traceback inside of the function that catches the error."""
    return error.__traceback__ and error.__traceback__.tb_next


def foreign(error: Exception) -> bool:
    """Whether code of the user's, called by the function that catches the error, raised it or let it through."""
    return next(users(deeper(error)), None) is not None
