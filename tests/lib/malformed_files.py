# SPDX-License-Identifier: Apache-2.0
"""Loads damaged copies of a small file: every byte changed, every length, and what follows it.

    python tests/lib/malformed_files.py sample | all

A copy must be refused, or give a valid structure. What torch.save does not promise is counted as well: copies that load
and whose values differ, since nothing in the file protects them. The loads run in processes that may die.
"""

import io
import logging
import sys
import warnings
from collections import Counter

import torch
from malformed_pool import look, run

import torch_lod as tl


def good() -> tuple[tl.LoDTensor, bytes]:
    x = tl.from_lengths(torch.arange(12.0).view(6, 2), [[2, 1], [1, 2, 3]], level_names=["text", "line"])
    file = io.BytesIO()
    torch.save(x, file)
    return x, file.getvalue()


def copies(data: bytes, every: int):
    """(what, the damaged file)"""
    for at in range(0, len(data), every):
        for bit in range(8) if every == 1 else [at % 8]:
            yield "flipped", data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
        for byte in (0, 255) if every == 1 else ():
            yield "overwritten", data[:at] + bytes([byte]) + data[at + 1 :]
        yield "truncated", data[:at]
        yield "shortened", data[:at] + data[at + 1 :]
        yield "lengthened", data[:at] + b"\0" + data[at:]
    for tail in (b"\0", b"\xff" * 100, b"PK\5\6" + b"\0" * 18, data):
        yield "extended", data + tail


def main(mode: str) -> int:
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    x, data = good()
    seen = torch.zeros(2, dtype=torch.int64).share_memory_()  # [loaded, loaded with other values], over all processes

    def load(damaged: bytes):
        y = torch.load(io.BytesIO(damaged), weights_only=True)
        seen[0] += 1
        look(y)
        if isinstance(y, tl.LoDTensor):
            y.to_padded(), y.to_list(), [*y.seq], repr(y)
            same = y.lod == x.lod and y.shape == x.shape and y.dtype == x.dtype and torch.equal(y.values(), x.values())
            seen[1] += not same

    load(data)
    assert seen.tolist() == [1, 0]
    seen.zero_()
    kinds, cases = Counter(), []
    for what, damaged in copies(data, 13 if mode == "sample" else 1):
        kinds[what] += 1
        cases.append((f"{what} #{len(cases)}", "torch.load", "D1", lambda d=damaged: load(d)))
    found = run(cases)
    for name, said in found["failures"]:
        print(f"FAILED {name}: {said}")
    print(
        f"{len(data)} bytes, {len(cases)} files ({', '.join(f'{count} {what}' for what, count in kinds.items())}): "
        f"{found['raised']} refused, {int(seen[0])} loaded, of which {int(seen[1])} differ in values, dtype or structure; "
        f"{len(found['failures'])} failed"
    )
    return int(bool(found["failures"]))


if __name__ == "__main__":
    if sys.argv[1:] not in (["sample"], ["all"]):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
