# SPDX-License-Identifier: Apache-2.0
"""What a function that is called for each length goes on holding of its results: copied. What it does not hold is not."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import torch_lod as tl

C = 4
AXES = {"batch_first": (0, 1, 2), "length_first": (1, 0, 2), "channels": (0, 2, 1)}


class Holding(torch.nn.Module):
    """Returns what it holds, in one of the ways of modules, and writes to it again."""

    def __init__(self, how, axes):
        super().__init__()
        self.how, self.axes, self.calls, self.array = how, axes, [], np.zeros((8, 8, 1), dtype=np.float32)
        self.register_buffer("state", torch.zeros(1))
        self.out = torch.zeros(8, 8, 1).permute(axes).contiguous()

    def forward(self, stack):
        count, length = stack.permute(self.axes).shape[:2]
        into = self.out.permute(self.axes)[:count, :length].permute(self.axes)
        if self.how == "an array":
            into = torch.from_numpy(self.array[:count, :length]).permute(self.axes)
        elif self.how == "a list":
            self.calls.append(torch.zeros(stack.shape))
            into = self.calls[-1]
            for earlier in self.calls:
                earlier.zero_()
        into.copy_(stack.detach() * 2)
        self.state.add_(stack.detach().sum())
        found = into.detach() if self.how == "detached" else into
        return found, {"state": self.state, "first": into.permute(self.axes)[:, :1]}, stack.add_(1)


@pytest.mark.parametrize("layout", AXES)
@pytest.mark.parametrize("how", ["itself", "detached", "an array", "a list"])
def test_what_fn_goes_on_holding_is_copied(how, layout):
    x = tl.from_lengths(torch.arange(1.0, 7)[:, None].requires_grad_(), [[2, 1, 3]])
    fn, results = (
        Holding(how, AXES[layout]),
        ("rows", {"state": "sequences", "first": ("resized", "batch_first")}, "rows"),
    )
    rows, each, added = tl.map_sequences(fn, x, layout=layout, results=results)
    assert rows.flatten().tolist() == [2, 4, 6, 8, 10, 12]
    assert each["state"].tolist() == [6, 3, 21] and each["first"].to_list() == [[[2]], [[6]], [[8]]]
    assert added.flatten().tolist() == [2, 3, 4, 5, 6, 7]
    (gradient,) = torch.autograd.grad(added.values().sum(), x)
    assert (gradient == 1).all()


class Clones(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten.clone.default
        return func(*args, **(kwargs or {}))


FRESH = {
    "a module": torch.nn.Linear(C, C),
    "the stack": torch.nn.Identity(),
    "in place": lambda t: t * 1 if t.requires_grad else t.mul_(2),
    "a part": lambda t: (t * 2)[..., :2],
    "two parts": lambda t: (t * 2).chunk(2, -1),
    "a recurrence": torch.nn.GRU(C, C, batch_first=True),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", FRESH)
def test_what_is_fresh_is_not_copied(name, grad):
    x = tl.from_lengths(torch.randn(14, C).requires_grad_(grad), [[3, 0, 4, 2, 5]])
    results = {"two parts": ("rows", "rows"), "a recurrence": ("rows", ("sequences", 1))}.get(name, "rows")
    counts = []
    for copies in (0, 1):
        keep = [] if copies else None

        def fn(t, keep=keep):
            found = FRESH[name](t)
            if keep is not None:
                keep.append(found)
            return found

        with Clones() as clones:
            tl.map_sequences(fn, x, results=results)
        counts.append(clones.count)
    outputs = 1 if isinstance(results, str) else len(results)
    assert counts[1] - counts[0] == 4 * outputs, counts  # four lengths; some modules clone


def test_a_stack_of_two_and_each_alone_are_not_one_buffer():
    out, x = torch.zeros(2, 3, 1), tl.from_lengths(torch.arange(6.0)[:, None], [[3, 3]])
    found = tl.map_sequences(lambda t: torch.mul(t, 2, out=out[2 - len(t) :]), x, check=True)
    assert found.flatten().tolist() == [0, 2, 4, 6, 8, 10]
    with pytest.raises(tl.LoDError, match="mixes the sequences of a dense batch"):
        tl.map_sequences(lambda t: torch.mul(t, len(t), out=out[2 - len(t) :]), x, check=True)
