# SPDX-License-Identifier: Apache-2.0
"""The structure of packed rows: `LoD`, its partition for the kernels, validation, devices."""
