# SPDX-License-Identifier: Apache-2.0
"""Run by Python before all else: UndefinedBehaviorSanitizer writes its reports to files. Its library sets the path of
its reports by a function that AddressSanitizer's library, which comes first, has as well; so they would go to stderr."""

import ctypes
import os

ctypes.CDLL("libubsan.so.1")["__sanitizer_set_report_path"](f"{os.environ['MALFORMED_REPORTS']}.undefined".encode())
