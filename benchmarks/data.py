# SPDX-License-Identifier: Apache-2.0
"""What tl.data costs, beside its goals: CPU time on one thread, the best of some runs.

python -m benchmarks.data [--lengths lengths.npy] [--items 10000000] [--rows 100000000]
"""

import argparse
import os
import tempfile
import time

import numpy as np
import torch

import torch_lod as tl

pad = torch.nn.utils.rnn.pad_sequence


def best(function, runs: int = 5) -> float:
    found = []
    for _ in range(runs):
        begin = time.process_time()
        function()
        found.append(time.process_time() - begin)
    return min(found)


def looped(samples):
    """Collating as it is often written: a tensor for every innermost list."""
    inner = [torch.as_tensor(line) for sample in samples for line in sample]
    return tl.from_lengths(torch.cat(inner), [[len(sample) for sample in samples], [len(line) for line in inner]])


def padded(samples):
    return pad(
        [pad([torch.as_tensor(line) for line in sample], batch_first=True) for sample in samples], batch_first=True
    )


def collate() -> None:
    print("collate 256 x 30 x 20 tokens, milliseconds (goals: a fifth of the loop, half of pad_sequence)")
    kinds = {"lists": list, "arrays": np.array, "tensors": torch.tensor}
    for name, kind in kinds.items():
        samples = [[kind(range(20)) for _ in range(30)] for _ in range(256)]
        times = dict.fromkeys((tl.data.collate, looped, padded), np.inf)
        for _ in range(9):  # in turns, so that a busy machine disturbs all
            for function in times:
                times[function] = min(times[function], best(lambda f=function: f(samples), 1))  # noqa: B023
        ours, loop, twice = times.values()
        print(
            f"  {name:<8}ours {1e3 * ours:7.1f}  loop {1e3 * loop:7.1f} ({loop / ours:.1f}x)  "
            f"padded {1e3 * twice:7.1f} ({twice / ours:.1f}x)"
        )


def samplers(lengths: np.ndarray, budget: int) -> None:
    print(f"plans of {len(lengths):,} lengths of {lengths.mean():.0f} on average, {budget} rows a batch (goal: 3 s)")
    for world in (1, 1024):
        for cls in (tl.data.TokenBudgetSampler, tl.data.PackingSampler, tl.data.BucketSampler):
            begin = time.process_time()
            sampler = cls(lengths, budget=budget, world_size=world, rank=0)
            steps = len(sampler)
            spent, about = time.process_time() - begin, sampler.summary()
            print(
                f"  {cls.__name__:<20}{world:>5} ranks {spent:5.2f} s {steps:>8} steps  filled {about['filled']:.4f}  more than "
                f"the mean: {about['imbalance']:.5f} in the epoch, {about['step_imbalance']:.5f} in a step"
            )


def columns() -> None:
    """A column of nested lists out of a Parquet file: as pyarrow reads it, and as a LoDTensor; the two in turns."""
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError:
        print("columns of Parquet: pyarrow is not installed")
        return
    draw = np.random.default_rng(0)
    words = np.clip(draw.lognormal(2.95, 0.6, 200_000), 1, 200).astype(np.int64)
    lod = tl.LoD.from_lengths([torch.full((len(words) // 10,), 10), torch.from_numpy(words)])
    x = tl.LoDTensor(torch.from_numpy(draw.integers(0, 30_000, lod.rows)), lod)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.parquet")
        pa.parquet.write_table(pa.table({"x": tl.data.to_arrow(x)}), path)
        read = lambda: pa.parquet.read_table(path, use_threads=False)["x"]  # noqa: E731
        times: dict[str, float] = {"pyarrow": np.inf, "from_arrow too": np.inf, "from_arrow alone": np.inf}
        column = read()
        calls = (read, lambda: tl.data.from_arrow(read()), lambda: tl.data.from_arrow(column))
        for _ in range(7):
            for name, call in zip(times, calls):
                times[name] = min(times[name], best(call, 1))
    print(
        f"a Parquet column of {lod.rows:,} words in {len(words):,} sentences in {len(words) // 10:,} documents, milliseconds: "
        + ", ".join(f"{name} {1e3 * t:.1f}" for name, t in times.items())
        + f"; {times['from_arrow too'] / times['pyarrow']:.2f} of pyarrow alone (goal: 1.2)"
    )


def anonymous() -> int:
    """Bytes of memory that belong to no file (Linux)."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))


def mapped(rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, inner = os.path.join(folder, "corpus"), rows // 10
        lod = tl.LoD.from_lengths([torch.full((inner // 10,), 10), torch.full((inner,), 10)])
        tl.data.save(tl.zeros(lod, dtype=torch.int32), path)
        del lod
        before, begin = anonymous(), time.perf_counter()
        dataset = tl.data.LoDDataset(path)
        opened = time.perf_counter() - begin
        grown = (anonymous() - before) / (inner + inner // 10)
        batches = np.random.default_rng(0).integers(0, len(dataset), (100, 256)).tolist()
        before = anonymous()
        spent = best(lambda: [tl.data.collate(dataset.__getitems__(batch)) for batch in batches], 2) / len(batches)
        print(
            f"{rows:,} rows in a file: opened in {opened:.2f} s (goal: 1 s), {grown:.1f} bytes a sequence (goal: 16); a batch of "
            f"25,600 rows {1e3 * spent:.2f} ms, {(anonymous() - before) / 2**20:.1f} MiB more after {2 * len(batches)} of them"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--lengths", help="a .npy file of lengths to draw from; otherwise log-normal ones, 23 on average"
    )
    parser.add_argument("--items", type=int, default=10_000_000)
    parser.add_argument("--rows", type=int, default=100_000_000)
    given = parser.parse_args()
    torch.set_num_threads(1)
    draw = np.random.default_rng(0)
    lengths = np.clip(draw.lognormal(2.95, 0.6, given.items), 1, 200).astype(np.int64)
    if given.lengths:
        lengths = draw.choice(np.load(given.lengths), given.items)
    collate()
    columns()
    samplers(lengths, 8192)
    mapped(given.rows)


if __name__ == "__main__":
    main()
