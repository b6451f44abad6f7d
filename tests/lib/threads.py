# SPDX-License-Identifier: Apache-2.0
"""Calls on a number of threads."""

import torch


def on_threads(threads: int, call):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return call()
    finally:
        torch.set_num_threads(before)
