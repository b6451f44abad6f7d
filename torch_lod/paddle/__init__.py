# SPDX-License-Identifier: Apache-2.0
"""Names for code and weights that come from PaddlePaddle. Prefer what `tl` has in torch's form (on the left):

    from_lengths, lod_tensor, full ...            for create_lod_tensor, create_random_int_lodtensor
    x.to_padded, tl.from_padded, x.mask           for sequence_pad, sequence_unpad, sequence_mask
    x.filter_rows, x.with_lod, tl.LoD             for sequence_erase, lod_reset, lod_append
    sequence_pool(x, "first"), tl.cat             for sequence_first_step, sequence_last_step, sequence_concat
    sequence_conv1d, sequence_unfold              for sequence_conv, row_conv, sequence_enumerate
    tl.nn.LinearChainCRF                          for linear_chain_crf, crf_decoding
    tl.chunk_f1 of names of tags                  for chunk_eval, ChunkEvaluator, where O has the last number
    tl.nn.CTCLoss, tl.ctc_decode                  for warpctc, ctc_greedy_decoder, ctc_align
    tl.nn.LSTM, tl.nn.GRU, tl.scan                for the recurrences on projected inputs, and the plan of one

Every name is also reachable as `tl.name`, but is not in `tl.__all__`. The families are imported when a name is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from . import methods as methods  # a LoDTensor has them from the beginning

if TYPE_CHECKING:
    from .chain import *
    from .chunks import *
    from .create import *
    from .decoding import *
    from .forms import *
    from .fused import *
    from .labels import *
    from .layout import *
    from .match import *
    from .plan import *
    from .recurrent import *
else:
    _FAMILIES = "chain chunks create decoding forms fused labels layout match plan recurrent".split()

    def __getattr__(name: str):
        if name[:2] == "__" and name != "__all__":
            raise AttributeError(name)
        families = [import_module(f"{__name__}.{family}") for family in _FAMILIES]
        names = {name: getattr(family, name) for family in families for name in family.__all__}
        globals().update(names, __all__=list(names))
        if name in globals():
            return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*__getattr__("__all__"), *globals()})
