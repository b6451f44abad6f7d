# SPDX-License-Identifier: Apache-2.0
"""What the examples that train share: progress, checkpoints, reports, arguments."""

from __future__ import annotations

import argparse
import json
import math
import os
import pickle
import platform
import secrets
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import torch
from torch.utils._pytree import tree_map_only

import torch_lod as tl

S = TypeVar("S")


class InputError(Exception):
    """What was given cannot be used; the message says why and what to do."""


# ---- progress ----------------------------------------------------------------------------------


class Progress:
    """One line per epoch; on a terminal it is rewritten while the epoch runs."""

    def __init__(self, name: str, first_epoch: int, epochs: int):
        self.name, self.first, self.epochs, self.started = name, first_epoch, epochs, time.perf_counter()
        self.live, self.shown = sys.stdout.isatty(), 0.0

    def show(self, epoch: int, done: float, loss: float, speed: float, note: str = "", unit: str = "tokens") -> None:
        """`done` is the part of the epoch that is over, `speed` in units a second."""
        now = time.perf_counter()
        if done < 1 and (not self.live or now - self.shown < 0.2):
            return
        self.shown = now
        complete = epoch - self.first + done
        left = (now - self.started) / complete * (self.epochs - self.first - complete)
        text = (
            f"{self.name:11} epoch {epoch + 1}/{self.epochs} {done:4.0%}  loss {loss:.3f}  "
            f"{speed / 1000:3,.0f}k {unit}/s{note}  {left:.0f} s left"
        )
        if self.live:
            print(f"\r\x1b[K{text}", end="\n" if done == 1 else "", flush=True)
        else:
            print(text, flush=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, highest: float, done: float, rise: float) -> None:
    """Up in the first part of the training, `rise`, then down to zero along a cosine; `done` is the part that is over."""
    for group in optimizer.param_groups:
        group["lr"] = highest * min(1.0, done / rise) * 0.5 * (1 + math.cos(math.pi * done))


# ---- checkpoints and reports -------------------------------------------------------------------


def save_checkpoint(state: dict, path: Path) -> None:
    """There is always a whole checkpoint, the old one or the new one. Any machine can read it."""
    on_cpu = tree_map_only(torch.Tensor, torch.Tensor.cpu, state)
    replace_file(path, lambda file: torch.save(on_cpu, file))


def replace_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Replaces a file by what `write` writes, once that is on disk; also where several processes do so at the same time."""
    unfinished = path.with_suffix(f".{secrets.token_hex(8)}.unfinished")
    try:
        with open(unfinished, "xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def load_checkpoint(path: Path) -> dict:
    """The state that `save_checkpoint` was given; it has a "fingerprint" of the data."""
    try:
        state = torch.load(path, weights_only=True)
    except FileNotFoundError:
        raise InputError(f"there is no checkpoint {path}: train first, or say --out") from None
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise InputError(f"cannot read the checkpoint {path}: {str(error).splitlines()[0]}") from None
    if not isinstance(state, dict) or "fingerprint" not in state:
        raise InputError(f"{path} is not a checkpoint of this example")
    return state


def fingerprint(data: object) -> int:
    """A number that changes with the data, by what `repr` prints of it."""
    return zlib.crc32(repr(data).encode("utf-8", "replace"))


def check_fingerprint(state: dict, data: int) -> None:
    if state["fingerprint"] != data:
        raise InputError(
            "the data is not the data of the checkpoint (another Python, or a changed file): "
            "start again with another --out, or give back the data of the first run"
        )


def settings_to_resume(kind: type[S], given: Mapping[str, Any], state: dict, out: Path) -> S:
    """Those of the checkpoint. A different one is refused, but for epochs: one may train on."""
    settings = kind(**state["settings"])
    for name, value in given.items():
        if name != "epochs" and value != getattr(settings, name):
            raise InputError(
                f"the checkpoint in {out} was trained with {name} {getattr(settings, name)}, not "
                f"{value}: start a new run with another --out"
            )
    return replace(settings, **given)  # type: ignore[type-var]


def make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}") from None


def save_report(report: dict, path: Path) -> None:
    """As JSON, with the versions and the machine that the numbers come from."""
    surroundings = {
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "torch_lod": tl.__version__},
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, {torch.get_num_threads()} threads used",
    }
    text = json.dumps(report | surroundings, indent=2) + "\n"
    replace_file(path, lambda file: file.write(text.encode()))


# ---- command line ------------------------------------------------------------------------------


def positive(kind: type):
    """A type for argparse; its name is what the error message says."""

    def parse(text: str):
        if not 0 < kind(text) < float("inf"):
            raise ValueError
        return kind(text)

    parse.__name__ = f"positive {kind.__name__}"
    return parse


def natural(text: str) -> int:
    if not 0 <= int(text) < 2**63:
        raise ValueError
    return int(text)


def fraction(text: str) -> float:
    if not 0 <= float(text) < 1:
        raise ValueError
    return float(text)


def device(text: str) -> torch.device:
    try:
        found = torch.device(text)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError):  # no such device, or a torch without it
        raise ValueError from None
    return found


def add_machine(add: Callable[..., Any]) -> None:
    """The options that say what computes; `compute_on` is what follows from them."""
    # The steps are small: a second thread gains little, and loses far more on a busy machine.
    add("--threads", type=positive(int), default=1, help="default: %(default)s")
    add("--device", type=device, default=torch.device("cpu"), help="of the model and its data, default: %(default)s")


def compute_on(asked: argparse.Namespace) -> None:
    torch.set_num_threads(asked.threads)
    if asked.device.type != "cpu":
        torch.set_default_device(asked.device)


def new_parser(manual: str | None) -> argparse.ArgumentParser:
    """Only the settings that were given are attributes of what it parses."""
    return argparse.ArgumentParser(
        description=manual, formatter_class=argparse.RawDescriptionHelpFormatter, argument_default=argparse.SUPPRESS
    )


def given_settings(kind: type, asked: argparse.Namespace) -> dict[str, Any]:
    """What the command line said of the fields of `kind`; its parser leaves out what was not said."""
    return {f.name: getattr(asked, f.name) for f in fields(kind) if hasattr(asked, f.name)}


def exit_status(run: Callable[[], None]) -> int:
    """0, or 2 after an `InputError`, whose message is printed, or 130 after Ctrl-C."""
    try:
        run()
        sys.stdout.flush()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader has enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("\nstopped; --resume goes on after the last epoch that was complete", file=sys.stderr)
        return 130
    return 0
