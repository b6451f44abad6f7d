# SPDX-License-Identifier: Apache-2.0
"""Checkpoints and reports of the examples, saved by several runs at the same time or interrupted."""

import json
import os
import sys
import threading
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import running


def state(number: int) -> dict:
    return {"fingerprint": number, "weights": torch.full((50_000,), number)}


def test_runs_that_save_to_one_folder_leave_whole_checkpoints(tmp_path):
    path, barrier, failed = tmp_path / "checkpoint.pt", threading.Barrier(4), []
    running.save_checkpoint(state(9), path)

    def save(number):
        barrier.wait()
        try:
            for _ in range(5):
                running.save_checkpoint(state(number), path)
                running.save_report({"run": number}, tmp_path / "report.json")
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=save, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        found = running.load_checkpoint(path)
        assert torch.equal(found["weights"], state(found["fingerprint"])["weights"])
    assert not failed and sorted(os.listdir(tmp_path)) == ["checkpoint.pt", "report.json"]
    assert json.loads((tmp_path / "report.json").read_text())["run"] in range(4)


def test_an_interrupted_save_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.pt"
    running.save_checkpoint(state(1), path)

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        running.save_checkpoint(state(2), path)
    assert running.load_checkpoint(path)["fingerprint"] == 1 and os.listdir(tmp_path) == ["checkpoint.pt"]
