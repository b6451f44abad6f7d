# SPDX-License-Identifier: Apache-2.0
"""The example programs as torchrun starts them: checks of tests/distributed/distributed_run.py."""

import contextlib
import io
import json
import os
import re
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))


def printed(program, *options) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert program.main([*map(str, options)]) == 0, options
    return said.getvalue()


def the_example_goes_on_in_the_middle_of_an_epoch() -> None:
    import distributed_training as example

    rank, folder = int(os.environ["RANK"]), Path(os.environ["TEST_FOLDER"])
    for kind in ([], ["--fsdp"]):
        whole, halved = folder / "whole", folder / "halved"
        common = ["--epochs", 2, "--budget", 400, *kind]
        said = printed(example, *common, "--out", whole)
        last = re.search(r"test accuracy \d+\.\d% \(2 processes, (\w+)\)\n$", said)
        assert rank or (last and last[1] == ("fully_shard" if kind else "DistributedDataParallel")), said
        said = printed(example, *common, "--out", halved, "--stop-after", 4)
        assert rank or re.search(r"at batch [1-9]\d* of epoch 2\n$", said), said
        again = printed(example, *common, "--out", halved, "--resume")
        assert rank or again.splitlines()[-1] == last[0].strip(), again
        if rank == 0:
            one, other = (torch.load(out / "checkpoint.pt", weights_only=True)["model"] for out in (whole, halved))
            assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def the_demo() -> None:
    import figures
    import train_nested_rnn as demo

    rank, folder = int(os.environ["RANK"]), Path(os.environ["TEST_FOLDER"])
    figures.available = lambda: False
    texts = [{"text": [["a", "b", "c"][: 1 + i % 3], ["d"] * (i % 5)], "label": i % 2} for i in range(51)]
    data = folder / f"texts.{rank}.jsonl"
    data.write_text("\n".join(map(json.dumps, texts)))
    small = ["--data", data, "--hidden", 4, "--embedding", 4, "--batch", 8, "--epochs", 2, "--dropout", 0]
    said = printed(demo, *small, "--distributed", "--out", folder / "shared")
    if rank:
        assert not said
        return
    assert re.fullmatch(r"test accuracy \d+\.\d% \(order-free \d+\.\d%, \d+ s\)", said.splitlines()[-1]), said
    printed(demo, *small, "--out", folder / "alone")
    losses, alone = (torch.load(folder / out / "checkpoint.pt", weights_only=True) for out in ("shared", "alone"))
    torch.testing.assert_close(losses["losses"], alone["losses"], rtol=1e-4, atol=1e-5)
    assert [entry["tokens"] for entry in losses["history"]] == [entry["tokens"] for entry in alone["history"]]


def programs_want_torchrun() -> None:
    import distributed_training as example
    import train_nested_rnn as demo

    rank = os.environ.pop("RANK")
    for program, options in ((example, ()), (demo, ("--distributed",))):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            assert program.main([*options]) == 2
        assert "torchrun: torchrun --nproc-per-node 2 " in said.getvalue()
    os.environ["RANK"] = rank
