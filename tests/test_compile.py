# SPDX-License-Identifier: Apache-2.0
"""A nested model whose input is a LoDTensor, compiled whole."""

import pytest
import torch

import torch_lod as tl


class Nested(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 8)
        self.words = tl.nn.LSTM(8, 8)
        self.lines = tl.nn.GRU(8, 8, bidirectional=True)
        self.out = torch.nn.Linear(16, 2)

    def forward(self, x):
        words, _ = self.words(self.embed(x))
        lines, _ = self.lines(tl.sequence_pool(words, "last"))
        return self.out(tl.sequence_pool(torch.relu(lines), "max"))


def batch(seed):
    g = torch.Generator().manual_seed(seed)
    lines = torch.randint(2, 5, (4,), generator=g)
    words = torch.randint(1, 6, (int(lines.sum()),), generator=g)
    return tl.from_lengths(torch.randint(0, 50, (int(words.sum()),), generator=g), [lines, words])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_nested_model_compiles_whole(backend):
    torch._dynamo.reset()
    model = Nested()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    for seed in range(4):
        x = batch(seed)
        expected, got = model(x), compiled(x)
        torch.testing.assert_close(got, expected)
        weights = list(model.parameters())
        for a, b in zip(torch.autograd.grad(got.sum(), weights), torch.autograd.grad(expected.sum(), weights)):
            torch.testing.assert_close(a, b)


def test_only_a_torch_that_needs_it_is_told_about_the_class():
    from torch.fx.experimental import proxy_tensor

    needed = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 15)
    assert (tl.LoDTensor in proxy_tensor.HANDLED_TYPES) == needed
