# SPDX-License-Identifier: Apache-2.0
"""From files to batches: collate."""

from ..collate import batch as collate

__all__ = ["collate"]
