# SPDX-License-Identifier: Apache-2.0
"""What the operators, tl.nn and the drop-in share: attention and recurrent layers on LoDTensors, below their public faces."""
