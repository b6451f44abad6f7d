# SPDX-License-Identifier: Apache-2.0
"""Structure: a LoD made and validated, against the sum and the copy that any implementation needs."""

import torch

import torch_lod as tl

from ..cases import Case, Cases, Ragged, Run, Setup
from ..goals import of_floor

SEQUENCES = 100_000


def cases(setup: Setup) -> Cases:
    # The structure lives in host memory whatever the device.
    ragged = Ragged("T", SEQUENCES, torch.device("cpu"))
    lengths, offsets = ragged.lengths_column.flatten(), ragged.offsets
    values = torch.empty(ragged.rows, 1)
    nested = {
        "torch.nested.nested_tensor_from_jagged, not validated": Run(
            lambda: torch.nested.nested_tensor_from_jagged(values, offsets), lambda result: (result.offsets(),)
        )
    }
    makers = {
        "100k sequences from offsets": (lambda: tl.LoD([offsets]), offsets, nested),
        "100k sequences from lengths": (lambda: tl.LoD.from_lengths([lengths]), lengths, {}),
    }
    for name, (make, given, peers) in makers.items():
        yield _construction(name, make, given, peers, offsets)
    outer = torch.full((SEQUENCES // 100,), 100)
    yield _construction(
        "1k of 100 sequences, from lengths", lambda: tl.LoD.from_lengths([outer, lengths]), lengths, {}, offsets
    )


def _construction(name, make, given, peers, offsets) -> Case:
    return Case(
        name=name,
        ours={"tl.LoD": Run(make, lambda lod: (lod.row_offsets(-1),))},
        peers=peers,
        floor=lambda: (torch.cumsum(given, 0), given.clone()),
        floor_is="torch.cumsum and clone",
        expected=lambda: (offsets,),
        tolerance=0,
        goals=(of_floor(3),),
    )
