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

Every name is also reachable as `tl.name`, but is not in `tl.__all__`.
"""

from typing import TYPE_CHECKING

from ..sequence import plan
from ..sequence.plan import *
from . import chain, chunks, create, decoding, forms, fused, labels, layout, match, recurrent
from .chain import *
from .chunks import *
from .create import *
from .decoding import *
from .forms import *
from .fused import *
from .labels import *
from .layout import *
from .match import *
from .recurrent import *

if not TYPE_CHECKING:  # as in torch_lod.sequence
    _families = (chain, chunks, create, decoding, forms, fused, labels, layout, match, plan, recurrent)
    __all__ = [name for family in _families for name in family.__all__]
