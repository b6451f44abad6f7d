# SPDX-License-Identifier: Apache-2.0
"""`import torch_lod` changes nothing in torch and imports no compiler; the first LoDTensor replaces what torch_lod.patches lists,
whatever code makes it and whatever was imported before. This file is also the program that finds out, in processes of its own."""

import copyreg
import inspect
import io
import json
import os
import pickle
import subprocess
import sys
import threading
import traceback
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
#: What torch_lod may import of torch, beyond what `import torch` does.
ALSO = {"torch.utils.flop_counter", "torch.utils.module_tracker", "torch.nn.attention._utils"}
#: torch's registries, which have entries of ours under our own names: operators and what torch asks about them, and the
#: functions that torch.load may call.
REGISTRIES = (
    "torch._subclasses.fake_impls.op_implementations_dict",
    "torch._weights_only_unpickler._marked_safe_globals_set",
    "torch.jit._builtins._builtin_table",
    "torch.library._defs",
    "torch.library._impls",
    "torch.ops._dir",
    "torch.ops.loaded_libraries",
    "torch.ops.torch_lod",
    "torch.ops.torch_lod_signals",
)


# -- the program


def _parts(value):
    """What a table holds, by identity."""
    if isinstance(value, dict):
        return {f"[{key!r}]": item for key, item in list(value.items())}
    if isinstance(value, (set, frozenset)):
        return {f"{{{item!r}}}": item for item in list(value)}
    if isinstance(value, list):
        return {f"[{i}]": item for i, item in enumerate(value)}
    return {}


def torchs() -> dict:
    """Everything that hangs on torch's modules, their classes and tables, by name."""
    found: dict = {f"copyreg.dispatch_table[{key!r}]": value for key, value in copyreg.dispatch_table.items()}
    for module in [m for name, m in sorted(sys.modules.items()) if name.partition(".")[0] == "torch"]:
        for name, value in list(vars(module).items()):
            path = f"{module.__name__}.{name}"
            found[path] = value
            own = inspect.isclass(value) and value.__module__.partition(".")[0] == "torch"
            for key, part in vars(value).items() if own else _parts(value).items() if name[:2] != "__" else ():
                found[f"{path}.{key}" if own else f"{path}{key}"] = part
    return found | {f"{path}.__code__": value.__code__ for path, value in found.items() if inspect.isfunction(value)}


def difference(before: dict, after: dict) -> dict:
    """The names of what is there, was there, and is another object. Another function has other code: that says it twice."""
    after = {
        name: value
        for name, value in after.items()
        if name[-9:] != ".__code__" or after[name[:-9]] is before.get(name[:-9])
    }
    before = {name: value for name, value in before.items() if name in after or name[-9:] != ".__code__"}
    changed = {name for name in before.keys() & after.keys() if before[name] is not after[name]}
    return {
        "added": sorted(after.keys() - before.keys()),
        "removed": sorted(before.keys() - after.keys()),
        "changed": sorted({defined(after[name[:-9]]) if name[-9:] == ".__code__" else name for name in changed}),
    }


def defined(function) -> str:
    """The code of a function by the name under which it was defined: it is found under others as well."""
    return f"{function.__module__}.{function.__qualname__}.__code__"


def report() -> None:
    modules, before = set(sys.modules), torchs()
    import torch_lod as tl

    imported, between = sorted(set(sys.modules) - modules), torchs()
    tl.LoD([[0, 2]])
    assert difference(between, torchs()) == {"added": [], "removed": [], "changed": []}, "a LoD alone"
    tl.lod_tensor([[1, 2], [3]])
    listed = sorted({(p.where, str(p.name)) for p in tl.patches.patches()})
    print(json.dumps([imported, difference(before, between), difference(between, torchs()), listed]))


# -- who makes the first LoDTensor; each in a process in which there is none yet


def _batches_know_their_rows(make, default_collate, tl) -> None:
    x = make()
    assert type(x) is tl.LoDTensor
    together = default_collate([x, x])
    assert type(together) is tl.LoDTensor and together.lod_level == x.lod_level + 1, together
    along = torch.func.grad(lambda q: (tl.sequence_softmax(q) * torch.arange(float(len(x)))).sum())(x.float())
    leaf = x.values().float().requires_grad_()
    (tl.sequence_softmax(x.with_values(leaf)) * torch.arange(float(len(x)))).sum().backward()
    torch.testing.assert_close(along, leaf.grad)
    seen = []
    torch.func.vmap(lambda q: seen.append(q) or q.sum(), in_dims=1)(torch.stack([x, x], 1).float())
    assert seen[0].lod is x.lod


class Made(torch.utils.data.Dataset):
    """Every process of a DataLoader makes its own."""

    def __len__(self):
        return 2

    def __getitem__(self, i):
        import torch_lod as tl

        return tl.from_lengths(torch.arange(3.0) + i, [[2, 1]])


ROWS = torch.tensor([1.0, 2.0, 5.0])


def first_ones(tl, saved, moved, loaded) -> dict:
    lengths = [[2, 1]]

    def inside(transform):
        seen = []

        def function(v):
            x = tl.from_lengths(v, lengths)
            seen.append(x)
            return tl.sequence_softmax(x).values().square().sum() + 0 * v.sum()

        transform(function)
        assert type(seen[0]) is tl.LoDTensor
        return tl.from_lengths(ROWS, lengths)

    def out_of(transform):
        found = transform(lambda v: tl.from_lengths(v, lengths))
        assert type(found) is tl.LoDTensor, type(found)
        return tl.from_lengths(found.values().detach().flatten()[:3], lengths)

    def threads():
        barrier, found = threading.Barrier(8), []

        def make():
            barrier.wait()
            found.append(tl.from_lengths(ROWS, lengths))

        started = [threading.Thread(target=make) for _ in range(8)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()
        return found[0]

    def of_moved():
        t = pickle.loads(moved)
        assert t.rows_dim == 1
        grads = torch.func.vmap(lambda q: q.lod is t.lod and q)(t)
        assert grads.rows_dim == 1
        return t[0]

    def compiled(function):
        return torch.compile(function, backend="eager", fullgraph=True)(ROWS)

    def worker(count):
        loader = torch.utils.data.DataLoader(Made(), 2, num_workers=count)
        found = next(iter(loader))
        assert found.lod.to_lengths() == [[2, 2], [2, 1, 2, 1]], found.lod
        return tl.from_lengths(ROWS, lengths)

    return {
        "from_lengths": lambda: tl.from_lengths(ROWS, lengths),
        "from_padded": lambda: tl.from_padded(torch.ones(2, 2), torch.tensor([2, 1])),
        "from_packed_sequence": lambda: tl.from_packed_sequence(
            torch.nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)])
        ),
        "zeros": lambda: tl.zeros(tl.LoD([[0, 2, 3]])),
        "batch": lambda: tl.batch([torch.ones(2), torch.ones(1)]),
        "the class": lambda: tl.LoDTensor(ROWS, tl.LoD([[0, 2, 3]])),
        "unpickled": lambda: pickle.loads(saved),
        "loaded": lambda: torch.load(io.BytesIO(loaded), weights_only=True)["x"],
        "moved rows unpickled": of_moved,
        "inside grad": lambda: inside(lambda f: torch.func.grad(f)(ROWS)),
        "inside jacrev": lambda: inside(lambda f: torch.func.jacrev(f)(ROWS)),
        "inside jvp": lambda: inside(lambda f: torch.func.jvp(f, (ROWS,), (ROWS,))),
        "inside vmap": lambda: inside(lambda f: torch.func.vmap(f)(torch.stack([ROWS, ROWS]))),
        "out of vjp": lambda: out_of(lambda f: torch.func.vjp(f, ROWS)[0]),
        "out of functionalize": lambda: out_of(lambda f: torch.func.functionalize(f)(ROWS)),
        "out of vmap": lambda: out_of(lambda f: torch.func.vmap(f, out_dims=1)(torch.stack([ROWS, ROWS]))),
        "a worker": lambda: worker(1),
        "the process of a DataLoader": lambda: worker(0),
        "eight threads": threads,
        "a graph": lambda: compiled(lambda v: tl.from_lengths(v, lengths)),
        "a graph, moved": lambda: compiled(lambda v: tl.from_lengths(v, lengths)[None])[0],
        "a transform in a graph": lambda: compiled(
            lambda v: tl.from_lengths(torch.func.grad(lambda u: tl.from_lengths(u, lengths).square().sum())(v), lengths)
        ),
    }


def every_first_one() -> None:
    from torch.autograd.forward_ad import dual_level, make_dual, unpack_dual  # before torch_lod
    from torch.utils.data import default_collate

    import torch_lod as tl

    torch.set_num_threads(1)
    of_others = [sys.executable, __file__, "bytes"]
    saved, moved, loaded = map(
        bytes.fromhex, subprocess.run(of_others, capture_output=True, text=True, check=True).stdout.split()
    )
    failed = []
    for name, make in first_ones(tl, saved, moved, loaded).items():
        assert tl.LoDTensor not in torch.utils.data._utils.collate.default_collate_fn_map, (
            "a LoDTensor is there already"
        )
        child = os.fork()
        if child == 0:
            try:
                _batches_know_their_rows(make, default_collate, tl)
                with dual_level():
                    x = tl.from_lengths(ROWS, [[2, 1]])
                    dual = make_dual(x, torch.ones(3))
                    assert dual.lod is x.lod and unpack_dual(dual).primal.lod is x.lod
                    assert type(make_dual(ROWS, torch.ones(3))) is torch.Tensor
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            failed.append(name)
    print(json.dumps([len(first_ones(tl, b"", b"", b"")), failed]))


def some_bytes() -> None:
    import torch_lod as tl

    x, file = tl.from_lengths(ROWS, [[2, 1]]), io.BytesIO()
    torch.save({"x": x, "t": x[None]}, file)
    print(pickle.dumps(x).hex(), pickle.dumps(x[None]).hex(), file.getvalue().hex())


PROGRAMS = {"report": report, "first": every_first_one, "bytes": some_bytes}


# -- the tests


def run(program: str):
    command = [sys.executable, "-W", "ignore", __file__, program]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, timeout=300)
    assert done.returncode == 0, done.stderr
    return *json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.fixture(scope="module")
def changes():
    return run("report")


def test_no_compiler_is_imported(changes):
    imported = {name for name in changes[0] if not name.startswith("torch_lod")}
    assert {name for name in imported if name.partition(".")[0] == "torch"} <= ALSO
    assert not imported & {"sympy", "mpmath", "networkx", "transformers", "pandas", "pyarrow", "safetensors"}


def test_the_import_changes_nothing_in_torch(changes):
    change = changes[1]
    assert change["removed"] == []
    added = [
        name for name in change["added"] if not name.startswith(tuple(ALSO))
    ]  # a module is an attribute of its package
    assert added and [name for name in added if not name.startswith(REGISTRIES)] == []
    assert [name for name in change["changed"] if name not in REGISTRIES] == []


def test_the_first_lod_tensor_changes_what_is_listed(changes):
    _, _, change, listed, _ = changes
    assert change["removed"] == []
    names = [f"{where}[{name}]" if name[:1] == "<" else f"{where}.{name}" for where, name in listed]
    assert len(names) == 27 and sorted(change["added"] + change["changed"]) == sorted(names)


def test_every_call_may_make_the_first_one():
    count, failed, said = run("first")
    assert count >= 20 and failed == [], said


if __name__ == "__main__":
    PROGRAMS[sys.argv[1]]()
