# SPDX-License-Identifier: Apache-2.0
"""A nested model whose input is a LoDTensor, compiled whole."""

import pytest
import torch
import torch.nn.functional as F

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


def everyday(x, y, cube, weight, ids, perm):
    """A call for every rule that a model meets; fullgraph allows none of them a break."""
    changed = x.clone().add_(y).clamp_(min=0.5)
    return [
        *(
            x + 1,
            x * y,
            x @ weight,
            cube @ cube,
            torch.addmm(weight[0], x, weight),
            torch.einsum("ij,jk->ik", x, weight),
        ),
        *(
            x.sum(1),
            x.std(1),
            x.max(1).values,
            x.sum(0),
            x.softmax(1),
            x.cumsum(1),
            x.sort(1).values,
            x.flip(1),
            x.diff(dim=1),
        ),
        *(
            x[:, 1:],
            x[:, None],
            x.chunk(2, 1)[0],
            x.gather(1, ids[:, None]),
            x.index_select(1, perm),
            x[perm],
            x.t(),
            cube.mT,
        ),
        *(
            torch.cat([x, y], 1),
            torch.stack([x, y], 1),
            torch.hstack([x, y]),
            torch.where(x > 0.5, x, y),
            changed,
            x.real,
        ),
        *(F.layer_norm(x, (4,)), F.embedding(ids, weight), F.cross_entropy(x, ids, reduction="none"), F.normalize(x)),
        *(F.cosine_similarity(x, y), F.interpolate(cube, 8), F.linear(x, weight), torch.cdist(cube, cube), cube.tril()),
        *(
            torch.fft.rfft(x).abs(),
            torch.linalg.det(cube),
            torch.outer(x[:, 0], weight[0]),
            x.scatter(1, ids[:, None], 1.0),
        ),
    ]


def test_rules_are_traced():
    lod = tl.LoD.from_lengths([[2, 1, 1]])
    x, y, cube = (tl.LoDTensor(torch.rand(shape), lod) for shape in ((4, 4), (4, 4), (4, 4, 4)))
    inputs = (x, y, cube, torch.rand(4, 4), tl.LoDTensor(torch.arange(4), lod), torch.tensor([1, 0, 3, 2]))
    expected = everyday(*inputs)
    found = torch.compile(everyday, fullgraph=True, backend="eager")(*inputs)
    assert sum(type(t) is torch.Tensor for t in expected) == 3
    for a, b in zip(found, expected, strict=True):
        assert type(a) is type(b) and getattr(a, "lod", None) == getattr(b, "lod", None)
        torch.testing.assert_close(*(t.values() if isinstance(t, tl.LoDTensor) else t for t in (a, b)))
