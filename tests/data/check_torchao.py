# SPDX-License-Identifier: Apache-2.0
"""Models whose weights torchao quantised, on LoDTensors: `make formats`, in an environment of its own."""

import copy

import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from torch import nn
from torchao.quantization import (
    Float8WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    quantize_,
)

import torch_lod as tl

hf.logging.set_verbosity_error()
pytestmark = pytest.mark.filterwarnings("ignore")
CONFIGS = {
    "int8": Int8WeightOnlyConfig,
    "int8, dynamic": Int8DynamicActivationInt8WeightConfig,
    "float8": Float8WeightOnlyConfig,
}
LENGTHS = [[[3, 1, 3], [4, 0, 2, 1, 3, 5, 2]], [[4, 2, 1, 3]]]
#: What is quantised again in every layer makes a step of that out of a difference in the last bit.
STEPS = {"int8, dynamic": {"rtol": 0, "atol": 2e-2}}


class Model(nn.Module):
    """Sequences of ids, in the layout of torch's own modules: a batch of one for a LoDTensor."""

    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(50, 32), nn.LSTM(32, 32, batch_first=True, bidirectional=True)
        self.norm, self.inner = nn.LayerNorm(64), nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 64))
        self.q, self.kv, self.out = nn.Linear(64, 64), nn.Linear(64, 128), nn.Linear(64, 5, bias=False)

    def forward(self, ids):
        t, _ = self.lstm(self.embed(ids))
        heads = [part.unflatten(-1, (4, 16)).transpose(1, 2) for part in (self.q(t), *self.kv(t).chunk(2, -1))]
        t = t + F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        return self.out(t + self.inner(self.norm(t)))


def quantised(model, name):
    quantize_(model, CONFIGS[name]())
    return model.eval()


def batch(lengths):
    return tl.from_lengths(torch.randint(50, (sum(lengths[-1]),), generator=torch.Generator().manual_seed(0)), lengths)


def alone(model, ids):
    """Of every sequence by itself, those without rows left out."""
    with torch.no_grad():
        return torch.cat([model(s[None])[0] for s in ids.values().split(ids.lengths().tolist()) if len(s)])


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("name", CONFIGS)
def test_as_every_sequence_alone(name, lengths):
    torch.manual_seed(0)
    plain = Model().eval()
    model, ids = quantised(copy.deepcopy(plain), name), batch(lengths)
    with torch.no_grad():
        found = model(ids[None])[0]
        torch.testing.assert_close(found.values(), alone(model, ids), **STEPS.get(name, {}))
        assert not torch.allclose(found.values(), alone(plain, ids), atol=1e-6)  # it is quantised
        mapped = tl.map_sequences(model, ids)
    assert not found.lod.differs(ids.lod)
    torch.testing.assert_close(mapped.values(), found.values(), **STEPS.get(name, {}))


@pytest.mark.parametrize("name", CONFIGS)
def test_every_form_of_a_layer(name):
    torch.manual_seed(0)
    layer, x = quantised(nn.Sequential(nn.Linear(32, 16)), name)[0], batch(LENGTHS[1])
    x = x.with_values(torch.randn(10, 32))
    with torch.no_grad():
        wanted = layer(x.values())
        assert torch.equal(layer(x).values(), wanted)
        assert torch.equal(layer(x[None])[0].values(), wanted)
        output, _ = tl.scan(lambda row, state: (layer(row), state), x, torch.zeros(4, 1))
        torch.testing.assert_close(output.values(), wanted)
        with tl.strict():
            assert torch.equal(layer(x).values(), wanted)


@pytest.mark.parametrize("name", CONFIGS)
def test_compiled(name):
    torch._dynamo.reset()
    torch.manual_seed(0)
    layers, x = quantised(nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 8)), name), batch(LENGTHS[1])
    x = x.with_values(torch.randn(10, 32))
    compiled = torch.compile(layers, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        for rows in (x, x[None]):
            found = compiled(rows)
            torch.testing.assert_close(found.values(), layers(rows).values())
            assert not found.lod.differs(x.lod)


MODELS = {
    "LlamaForCausalLM": (hf.LlamaConfig, "logits", {"num_key_value_heads": 2}),
    "BertForTokenClassification": (hf.BertConfig, "logits", {}),
}


@pytest.mark.parametrize("method", ["packed", "map_sequences"])
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("kind", MODELS)
def test_use_of_a_quantised_model(kind, name, method):
    """Its weights have no gradients, and packed the steps of "int8, dynamic" are not those of each alone."""
    config, output, options = MODELS[kind]
    torch.manual_seed(0)
    small = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = getattr(hf, kind)(config(**small, intermediate_size=64, **options))
    model, ids = quantised(model, name), batch(LENGTHS[1])
    with torch.no_grad():
        wanted = torch.cat([model(s[None])[output][0] for s in ids.sequences()])
        tl.integrations.transformers.use(model, method=method, check=method != "packed" or name not in STEPS)
        found = model(ids)[output]
        torch.testing.assert_close(found.values(), wanted, **STEPS.get(name, {}))
        tl.integrations.transformers.use(model)
        assert model.torch_lod.method == "packed" or name in STEPS
