# SPDX-License-Identifier: Apache-2.0
"""Every operator's schema, read from the file that the compiled library is built with: csrc/torch_lod/schemas.h."""

import re
from pathlib import Path

from ..errors import LoDRuntimeError
from .headers import include_paths


def read() -> dict[str, str]:
    """The schemas by name, with named lists of arguments replaced by their content."""
    try:
        path = Path(include_paths()[0]) / "torch_lod" / "schemas.h"
    except LoDRuntimeError:
        path = Path(__file__).parent.parent / "include" / "torch_lod" / "schemas.h"
    if not path.is_file():
        raise LoDRuntimeError(
            f"import torch_lod: expected the operators' schemas in {path}, found no such file; install torch_lod again"
        )
    text = re.search(r'R"schemas\((.*)\)schemas"', path.read_text(), re.S)
    lists: dict[str, str] = {}
    schemas: dict[str, str] = {}
    for line in text[1].splitlines() if text else ():
        line = line.partition("#")[0].strip()
        if not line:
            continue
        if named := re.fullmatch(r"(\w+) = (.*)", line):
            lists[named[1]] = named[2].format(**lists)
        else:
            schemas[line.partition("(")[0]] = line.format(**lists)
    return schemas
