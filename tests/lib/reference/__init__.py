# SPDX-License-Identifier: Apache-2.0
"""What every operator means: slow, obvious loops without torch_lod."""
