# SPDX-License-Identifier: Apache-2.0
"""A program: what long operators do with signals. It prints how many seconds after Ctrl-C each of them ended."""

import os
import signal
import sys
import threading
import time

import torch

import torch_lod as tl

attention = torch.ops.torch_lod.attention.default
ROWS = 60_000  # a minute of attention, on one thread
OFFSETS = torch.tensor([0, ROWS])


def interrupted(name: str, call, after: float) -> float:
    """The seconds from Ctrl-C, which comes `after` seconds of the call, to its end."""
    sent = []

    def send():
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(after, send)
    timer.start()
    try:
        call()
    except KeyboardInterrupt as error:
        ended = time.perf_counter()
        assert not error.args, error
        return ended - sent[0]
    finally:
        timer.cancel()
    raise AssertionError(f"{name} finished; Ctrl-C was {'' if sent else 'not yet '}sent")


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(threads: int) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background begins with it ignored
    torch.set_num_threads(threads)
    q = torch.randn(ROWS, 1, 64)
    out, sums = torch.randn(ROWS, 1, 64), torch.zeros(ROWS, 1)
    options = (None, None, None, None, -1, -1, 0.0, *[None] * 4)
    backward = torch.ops.torch_lod.attention_backward.default
    x = tl.from_lengths(torch.randn(400_000, 4), [[400_000]])
    lstm = tl.nn.LSTM(4, 256)
    loss = tl.nn.LSTM(4, 128)(x)[0].sum()
    crf, tags = tl.nn.LinearChainCRF(60), tl.from_lengths(torch.randn(2000, 60), [[2000]])
    many = tl.nn.LinearChainCRF(1500)
    wide, points = (
        tl.from_lengths(torch.randn(20_000, 1500), [[20_000]]),
        tl.from_lengths(torch.randn(40_000, 3), [[40_000]]),
    )
    calls = {
        "attention": lambda: attention(q, q, q, OFFSETS, OFFSETS),
        "attention, float64": lambda: attention(q.double(), q.double(), q.double(), OFFSETS, OFFSETS),
        "gradient of attention": lambda: backward(out, q, q, q, OFFSETS, OFFSETS, *options, out, sums, False),
        "recurrence": lambda: lstm(x),
        "gradient of a recurrence": lambda: loss.backward(),
        "many best paths": lambda: crf.decode(tags, 2000),
        "best path of many tags": lambda: many.decode(wide),
        "marginals of many tags": lambda: many.marginals(wide),
        "nearest rows": lambda: tl.sequence_knn(points, points, 5),
    }
    for name, call in calls.items():
        print(f"{name}: {interrupted(name, call, 0.3):.3f} s")
    before = resident()
    for _ in range(3):
        interrupted("attention", calls["attention"], 0.2)
    assert resident() - before < 32 * 2**20, (before, resident())

    part = q[:8000].contiguous()
    offsets = torch.tensor([0, 8000])
    right, small = (
        attention(part, part, part, offsets, offsets)[0],
        attention(part[:300], part[:300], part[:300], *[torch.tensor([0, 300])] * 2)[0],
    )
    handled = []

    def handler(*_):  # returns, and uses the operator that it interrupts
        again = attention(part[:300], part[:300], part[:300], *[torch.tensor([0, 300])] * 2)[0]
        handled.append(torch.equal(again, small))

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.15, 0.15)
    for _ in range(20):
        assert torch.equal(attention(part, part, part, offsets, offsets)[0], right)
        if len(handled) > 3:
            break
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert handled and all(handled), handled

    numbers = torch.Generator().manual_seed(0)
    texts = [torch.randint(0, 50, (m,), generator=numbers) * 1000003 for m in (60_000, 400_000, 300, 1_000_000)]
    ends = [torch.tensor([0, len(t)]) for t in texts]

    def distance(i):
        return torch.ops.torch_lod.edit_distance(texts[i], ends[i], texts[i + 1], ends[i + 1]).item()

    far, near, during = distance(0), distance(2), []
    signal.signal(signal.SIGALRM, lambda *_: during.append(distance(2)))
    signal.setitimer(signal.ITIMER_REAL, 0.15)
    assert distance(0) == far and during == [near], (far, near, during)

    class Own(Exception):
        pass

    def raising(*_):
        raise Own

    signal.signal(signal.SIGALRM, raising)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        attention(q, q, q, OFFSETS, OFFSETS)
    except Own:
        print("handlers: ok")


if __name__ == "__main__":
    main(int(sys.argv[1]))
