# SPDX-License-Identifier: Apache-2.0
"""The leak law over the modules of torch.nn: given LoDTensors, each leaves the rows of other sequences alone, or refuses, or
gives plain tensors."""

import copy
import warnings

import pytest
import torch
from torch import nn

from torch_lod import LoD, LoDError, LoDTensor

STRUCTURE = LoD.from_lengths([[2, 3, 1, 0]])
CHANGED = slice(2, 5)  # the rows of the second sequence
ROWS = STRUCTURE.rows
SHAPES = {
    "v": (),
    "x": (6,),
    "cube": (6, 6),
    "four": (6, 6, 6),
    "five": (6, 6, 6, 6),
    "y": (6,),
    "z": (6,),
    "pair": (6, 3),
}

#: How each is made and called. `x` (rows, 6), `cube` (rows, 6, 6) and so on are LoDTensors; `p`, `p3` are plain.
MODULES = {
    "AdaptiveAvgPool1d(2)": "x|cube",
    "AdaptiveAvgPool2d(2)": "cube|four",
    "AdaptiveAvgPool3d(2)": "four|five",
    "AdaptiveLogSoftmaxWithLoss(6, 6, [2, 4])": "x, ids|x, ids.values()|p, ids",
    "AdaptiveMaxPool1d(2)": "x|cube",
    "AdaptiveMaxPool2d(2)": "cube|four",
    "AdaptiveMaxPool3d(2)": "four|five",
    "AlphaDropout()": "x|cube",
    "AvgPool1d(2)": "x|cube",
    "AvgPool2d(2)": "cube|four",
    "AvgPool3d(2)": "four|five",
    "BCELoss(reduction='none')": "x, y|x, p|p, x",
    "BCEWithLogitsLoss(reduction='none')": "x, y|x, p|p, x",
    "Bilinear(6, 6, 3)": "x, y|x, p|v, v",
    "CELU()": "x|v",
    "CTCLoss()": "cube, ids.view(6, 1), (6,) * 6, (1,) * 6",
    "ChannelShuffle(2)": "four|cube",
    "CircularPad1d(1)": "x|cube",
    "CircularPad2d(1)": "cube|four",
    "CircularPad3d(1)": "four|five",
    "ConstantPad1d(1, 2.0)": "x|cube|v",
    "ConstantPad2d(1, 2.0)": "x|cube|four",
    "ConstantPad3d(1, 2.0)": "cube|four|five",
    "Conv1d(6, 4, 3, padding=1)": "x|cube",
    "Conv2d(6, 4, 3)": "cube|four",
    "Conv3d(6, 4, 3)": "four|five",
    "ConvTranspose1d(6, 4, 3)": "x|cube",
    "ConvTranspose2d(6, 4, 3)": "cube|four",
    "ConvTranspose3d(6, 4, 3)": "four|five",
    "CosineEmbeddingLoss(reduction='none')": "x, y, v.sign()|x, p, v.sign()",
    "CosineSimilarity()": "x, y|x, p|cube, cube",
    "CosineSimilarity(dim=0)": "x, y|v, v",
    "CrossEntropyLoss(reduction='none')": "x, ids|x, y|p, ids|cube, ids.view(6, 1).expand(6, 6)",
    "Dropout()": "x|v|cube",
    "Dropout1d()": "x|cube",
    "Dropout2d()": "cube|four",
    "Dropout3d()": "four|five",
    "ELU()": "x|v",
    "Embedding(6, 3)": "ids|ids.view(6, 1)",
    "EmbeddingBag(6, 3)": "ids.view(6, 1)|ids, p1.long()|ids|ids.view(6, 1), None, x[:, :1]",
    "FeatureAlphaDropout()": "x|cube",
    "Flatten()": "x|cube",
    "Flatten(0)": "x|v",
    "Fold((2, 2), (1, 1))": "cube|cube[:, :, :4]|x[:, :4]",
    "FractionalMaxPool2d(2, output_size=2)": "cube|four",
    "FractionalMaxPool3d(2, output_size=2)": "four|five",
    "GELU()": "x|v",
    "GLU()": "x|cube|v",
    "GLU(0)": "x|v",
    "GRU(6, 4)": "x|x, p[:1, :4]|cube",
    "GRU(6, 4, batch_first=True, bidirectional=True)": "x|cube",
    "GRUCell(6, 6)": "x|x, y|x, p|p, x",
    "GaussianNLLLoss(reduction='none')": "x, y, z|x, p, p|x, y, v",
    "GroupNorm(2, 6)": "x|cube|four",
    "Hardshrink()": "x|v",
    "Hardsigmoid()": "x|v",
    "Hardswish()": "x|v",
    "Hardtanh()": "x|v",
    "HingeEmbeddingLoss(reduction='none')": "x, y|x, p",
    "HuberLoss(reduction='none')": "x, y|x, p",
    "Identity()": "x|v",
    "InstanceNorm1d(6)": "x|cube",
    "InstanceNorm1d(6, affine=True, track_running_stats=True)": "x|cube",
    "InstanceNorm2d(6)": "cube|four",
    "InstanceNorm3d(6)": "four|five",
    "KLDivLoss(reduction='none')": "x, y|x, p",
    "L1Loss(reduction='none')": "x, y|x, p",
    "LPPool1d(2, 2)": "x|cube",
    "LPPool2d(2, 2)": "cube|four",
    "LPPool3d(2, 2)": "four|five",
    "LSTM(6, 4)": "x|x, (p[:1, :4], p[:1, :4])|cube",
    "LSTM(6, 4, batch_first=True, bidirectional=True, num_layers=2, dropout=0.5)": "x|cube",
    "LSTM(6, 4, proj_size=3)": "x|cube",
    "LSTMCell(6, 6)": "x|x, (y, z)|x, (p, p)|p, (x, y)",
    "LayerNorm(6)": "x|cube",
    "LayerNorm((6, 6))": "x|cube",
    "LeakyReLU()": "x|v",
    "Linear(6, 3)": "x|cube|v",
    "LocalResponseNorm(2)": "cube|four",
    "LogSigmoid()": "x|v",
    "LogSoftmax(1)": "x|cube",
    "LogSoftmax(0)": "x|v",
    "MSELoss(reduction='none')": "x, y|x, p|p, x",
    "MarginRankingLoss(reduction='none')": "x, y, z|v, v, v",
    "MaxPool1d(2)": "x|cube",
    "MaxPool1d(2, return_indices=True)": "x|cube",
    "MaxPool2d(2)": "cube|four",
    "MaxPool3d(2)": "four|five",
    "MaxUnpool1d(2)": "x, x.long() * 0|cube, cube.long() * 0",
    "MaxUnpool2d(2)": "cube, cube.long() * 0|four, four.long() * 0",
    "MaxUnpool3d(2)": "four, four.long() * 0|five, five.long() * 0",
    "Mish()": "x|v",
    "MultiLabelMarginLoss(reduction='none')": "x, ids.view(6, 1).expand(6, 6)|v, ids",
    "MultiLabelSoftMarginLoss(reduction='none')": "x, y|x, p|v, v",
    "MultiMarginLoss(reduction='none')": "x, ids|p, ids",
    "MultiheadAttention(6, 2)": "x, x, x|x, y, y|cube, cube, cube|p, x, x|x, p, p",
    "MultiheadAttention(6, 2, batch_first=True)": "x, x, x|x, y, y|cube, cube, cube",
    "NLLLoss(reduction='none')": "x, ids|p, ids",
    "PReLU()": "x|v",
    "PReLU(6)": "x|cube",
    "PairwiseDistance()": "x, y|x, p|v, v|x, p1",
    "PixelShuffle(1)": "cube|four",
    "PixelUnshuffle(2)": "cube|four",
    "PoissonNLLLoss(reduction='none')": "x, y|x, p",
    "RMSNorm(6)": "x|cube|v",
    "RNN(6, 4)": "x|cube",
    "RNN(6, 4, nonlinearity='relu', batch_first=True)": "x|cube",
    "RNNCell(6, 6)": "x|x, y|x, p",
    "RReLU()": "x|v",
    "ReLU()": "x|v",
    "ReLU(inplace=True)": "x * 1|v * 1",
    "ReLU6()": "x|v",
    "ReflectionPad1d(1)": "x|cube",
    "ReflectionPad2d(1)": "cube|four",
    "ReflectionPad3d(1)": "four|five",
    "ReplicationPad1d(1)": "x|cube",
    "ReplicationPad2d(1)": "cube|four",
    "ReplicationPad3d(1)": "four|five",
    "SELU()": "x|v",
    "SiLU()": "x|v",
    "Sigmoid()": "x|v",
    "SmoothL1Loss(reduction='none')": "x, y|x, p",
    "SoftMarginLoss(reduction='none')": "x, y|x, p",
    "Softmax()": "x|v",
    "Softmax(0)": "x|v",
    "Softmax(-1)": "x|v",
    "Softmax2d()": "cube|four",
    "Softmin(1)": "x|v",
    "Softplus()": "x|v",
    "Softshrink()": "x|v",
    "Softsign()": "x|v",
    "Tanh()": "x|v",
    "Tanhshrink()": "x|v",
    "Threshold(0.1, 2.0)": "x|v",
    "Transformer(6, 2, 1, 1, 8)": "x, y|cube, cube",
    "TransformerDecoder(nn.TransformerDecoderLayer(6, 2, 8), 1)": "x, y|cube, cube",
    "TransformerDecoderLayer(6, 2, 8, batch_first=True)": "x, y|x, p|cube, cube",
    "TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), 1)": "x|cube",
    "TransformerEncoderLayer(6, 2, 8)": "x|cube",
    "TransformerEncoderLayer(6, 2, 8, batch_first=True, norm_first=True)": "x|cube",
    "TripletMarginLoss(reduction='none')": "x, y, z|x, p, p|v, v, v",
    "TripletMarginWithDistanceLoss(reduction='none')": "x, y, z|x, p, p",
    "Unflatten(1, (2, 3))": "x|cube",
    "Unflatten(0, (2, 3))": "x|v",
    "Unfold(2)": "cube|four",
    "Upsample(scale_factor=2)": "cube|four|x",
    "Upsample(scale_factor=2, mode='linear')": "cube",
    "UpsamplingBilinear2d(scale_factor=2)": "four",
    "UpsamplingNearest2d(scale_factor=2)": "four",
    "ZeroPad1d(1)": "x|cube|v",
    "ZeroPad2d(1)": "x|cube|four",
    "ZeroPad3d(1)": "cube|four",
    "LinearCrossEntropyLoss(6, 6, reduction='none')": "x, ids",
}
#: In training their statistics are those of all real rows of the batch: they have a test of their own.
BATCH_NORMS = {"BatchNorm1d(6)": "x|cube", "BatchNorm2d(6)": "four", "BatchNorm3d(6)": "five"}
#: Classes that no sequence goes through.
APART = {
    "bases, and containers of other modules": "Module Container ModuleDict ModuleList ParameterDict ParameterList Sequential RNNBase "
    "RNNCellBase",
    "becomes one of the others when it is first called": "LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyConv1d LazyConv2d "
    "LazyConv3d LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d LazyInstanceNorm1d LazyInstanceNorm2d "
    "LazyInstanceNorm3d LazyLinear",
    "runs on GPUs, as BatchNorm": "SyncBatchNorm",
    "a wrapper of another module": "DataParallel",
    "of the older name": "NLLLoss2d CrossMapLRN2d",
}


def made(change: str, plain: bool = False) -> dict:
    def rows(name, seed):
        t = torch.rand(ROWS, *SHAPES[name], generator=torch.Generator().manual_seed(seed)) * 0.8 + 0.1
        if change:
            other = torch.rand(t[CHANGED].shape, generator=torch.Generator().manual_seed(seed + 50)) * 0.8 + 0.1
            t[CHANGED] = {"other": other, "nan": float("nan"), "huge": 3e30}[change]
        return t if plain else LoDTensor(t, STRUCTURE)

    found = {name: rows(name, seed) for seed, name in enumerate(SHAPES)}
    ids = torch.tensor([0, 1, 2, 3, 4, 5])
    if change:
        ids[CHANGED] = torch.tensor([5, 0, 1])
    found["ids"] = ids if plain else LoDTensor(ids, STRUCTURE)
    p = torch.rand(6, 6, generator=torch.Generator().manual_seed(99))
    return {**found, "p": p, "p1": p[0], "nn": nn, "torch": torch}


def structured(result) -> list:
    if isinstance(result, LoDTensor):
        return [result]
    return [t for part in result for t in structured(part)] if isinstance(result, (tuple, list)) else []


def run(module, form: str, change: str):
    module = copy.deepcopy(module)
    torch.manual_seed(0)
    return structured(eval(f"module({form})", {"module": module}, made(change)))


_TORCH = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError, AssertionError)


def outcome(module, form: str) -> str:
    try:
        before = run(module, form, "")
    except LoDError:
        return "refused"
    except _TORCH:
        return "torch refuses"
    for change in ("other", "nan", "huge") if before else ():
        try:
            after = run(module, form, change)
        except _TORCH:
            assert change != "other"
            continue  # a loss of probabilities takes no others
        assert len(before) == len(after), f"{form}: the kind of the result depends on the rows"
        for a, b in zip(before, after, strict=True):
            assert a.shape == b.shape and a.shape[0] == a.lod.rows, form
            if a.num_sequences() == STRUCTURE.num_sequences():
                said, others = f"{form}: rows of others changed ({change})", a.lod.segment_ids(0) != 1
                torch.testing.assert_close(a.values()[others], b.values()[others], msg=said, equal_nan=True)
    return "kept" if before else "plain"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("training", [True, False], ids=["training", "eval"])
@pytest.mark.parametrize("text", [text for text in MODULES if hasattr(nn, text.split("(")[0])])
def test_no_module_leaks(text, training, record_property):
    torch.manual_seed(1)
    module = eval(f"nn.{text}", {"nn": nn}).train(training)
    outcomes = {form: outcome(module, form) for form in MODULES[text].split("|")}
    assert set(outcomes.values()) != {"torch refuses"}, f"{text}: no form runs"
    record_property("module", text.split("(")[0])


@pytest.mark.parametrize("text", BATCH_NORMS)
def test_batch_norm_takes_the_statistics_of_all_real_rows(text):
    form = BATCH_NORMS[text]
    torch.manual_seed(1)
    module = eval(f"nn.{text}", {"nn": nn})
    for name in form.split("|"):
        trained, plain = copy.deepcopy(module), copy.deepcopy(module)
        found = trained(made("")[name])
        torch.testing.assert_close(found.values(), plain(made("", plain=True)[name]))
        assert found.lod is STRUCTURE and torch.equal(trained.running_mean, plain.running_mean)
        with pytest.raises(AssertionError, match="rows of others changed"):
            outcome(module.train(), name)
        assert outcome(module.eval(), name) == "kept"
        module.train()


def test_every_module_of_torch_is_here():
    def is_module(thing):
        return isinstance(thing, type) and issubclass(thing, nn.Module)

    there = {name for name in dir(nn) if is_module(getattr(nn, name)) and not name.startswith("_")}
    named = {text.split("(")[0] for text in {**MODULES, **BATCH_NORMS}}
    excused = {name for names in APART.values() for name in names.split()}
    missing = sorted(there - named - excused)
    if torch.__version__.startswith("2.13"):
        assert not missing, f"say in this file how they are made: {missing}"
    elif missing:
        warnings.warn(f"torch {torch.__version__} has modules that the law does not know: {missing}", stacklevel=1)
