# SPDX-License-Identifier: Apache-2.0
"""Other people's libraries on LoDTensors. A library is imported when it is asked for: none of them need be installed."""

from . import transformers as transformers
