# SPDX-License-Identifier: Apache-2.0
"""`tl.map_sequences` as a module."""

from typing import Any

import torch

from ..errors import LoDTypeError, public
from ..sequence import map_sequences
from ..sequence.map import checked_options
from ..structure.validate import a_bool
from ..tensor.lod_tensor import LoDTensor

__all__ = ["MapSequences"]


class MapSequences(torch.nn.Module):
    """`tl.map_sequences` as a module that holds the module it calls: unedited, and under `module.` in the state_dict.

    Args:
        module: called with stacks of equally long sequences, once for each distinct length.
        level, layout, results, pad_to, fill, check: as map_sequences takes them.

    Returns (forward(x, *others, **kwargs)):
        what `results` says, as map_sequences does.
    """

    @public
    def __init__(
        self,
        module: torch.nn.Module,
        *,
        level: int | str = -1,
        layout: str = "batch_first",
        results: Any = "rows",
        pad_to: list[int] | tuple[int, ...] | None = None,
        fill: float = 0,
        check: bool = False,
    ):
        super().__init__()
        if not isinstance(module, torch.nn.Module):
            raise LoDTypeError(
                f"expected module as a torch.nn.Module, got {type(module).__name__}; see tl.map_sequences"
            )
        checked_options(module, layout, results, pad_to, fill)
        a_bool("check", check)
        self.module, self.level, self.layout, self.results = module, level, layout, results
        self.pad_to, self.fill, self.check = pad_to, fill, check

    @public
    def forward(self, x: LoDTensor, *others, **kwargs):
        """`tl.map_sequences(module, x, *others, **kwargs)` with the options of this module.

        Args:
            x: the LoDTensor whose sequences are stacked.
            others: what else is called with, as `tl.map_sequences` takes it: LoDTensors with a sequence for each of x's.
            kwargs: given to the module as they are.

        Returns:
            what `results` says.
        """
        options = {"layout": self.layout, "results": self.results, "pad_to": self.pad_to, "fill": self.fill}
        return map_sequences(self.module, x, *others, level=self.level, check=self.check, **options, **kwargs)

    def extra_repr(self) -> str:
        return f"level={self.level!r}, layout={self.layout!r}, results={self.results!r}, pad_to={self.pad_to}, fill={self.fill}"
