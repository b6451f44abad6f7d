# SPDX-License-Identifier: Apache-2.0
"""Frames whose columns can do what those of pandas can."""

import numpy as np


class Column:
    def __init__(self, values):
        self.values = np.asarray(values)
        self.dtype = self.values.dtype

    def __len__(self):
        return len(self.values)

    def to_numpy(self):
        return self.values

    def isna(self):
        return Column([value is None or value != value for value in self.values])

    def factorize(self):
        found = {value: i for i, value in enumerate(dict.fromkeys(self.values.tolist()))}
        return np.array([found[value] for value in self.values.tolist()], int), np.array(list(found), self.dtype)


class Frame:
    def __init__(self, **columns):
        self.data = {name: Column(values) for name, values in columns.items()}
        self.columns, self.shape = list(columns), (len(next(iter(columns.values()))), len(columns))

    def __getitem__(self, name):
        return self.data[name]
