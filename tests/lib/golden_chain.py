# SPDX-License-Identifier: Apache-2.0
"""Adapters of structured prediction."""

from golden_cases import Case, adapter

import torch_lod as tl


def _sequences(c: Case, slot: str):
    """What was recorded padded, of the lengths in Length, as a LoDTensor."""
    if "Length" not in c:
        return c[slot]
    given = c[slot]
    given = given.squeeze(-1) if slot == "Label" and given.dim() == 3 else given
    return tl.from_padded(given, c["Length"].flatten())


@adapter("linear_chain_crf")
def linear_chain_crf(c: Case):
    loss = tl.linear_chain_crf(_sequences(c, "Emission"), _sequences(c, "Label"), c["Transition"])
    return {"LogLikelihood": loss}


@adapter("crf_decoding")
def crf_decoding(c: Case):
    label = _sequences(c, "Label") if "Label" in c else None
    path = tl.crf_decoding(_sequences(c, "Emission"), c["Transition"], label)
    if "Length" not in c:
        return {"ViterbiPath": path}
    padded = path.to_padded()
    padded = padded[0] if isinstance(padded, tuple) else padded
    return {"ViterbiPath": padded.squeeze(-1)}
