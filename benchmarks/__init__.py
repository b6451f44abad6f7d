# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks`: every operator beside its peers and beside what the machine can do. See README.md."""
