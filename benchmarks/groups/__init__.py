# SPDX-License-Identifier: Apache-2.0
"""The cases by group; a group makes one case after another, so that the inputs of only one are in memory."""

from collections.abc import Callable

from ..cases import Cases, Setup
from . import attention, compile, layers, lod, lstm, nested, overhead, price, rows, segment, structured, tail, windows

GROUPS: dict[str, Callable[[Setup], Cases]] = {
    "lod": lod.cases,
    "overhead": overhead.cases,
    "segment": segment.cases,
    "rows": rows.cases,
    "windows": windows.cases,
    "tail": tail.cases,
    "lstm": lstm.cases,
    "attention": attention.cases,
    "nested": nested.cases,
    "structured": structured.cases,
    "price": price.cases,
    "layers": layers.cases,
    "compile": compile.cases,
}
