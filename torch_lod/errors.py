# SPDX-License-Identifier: Apache-2.0
"""Errors from `torch_lod` are ValueError, TypeError, IndexError or RuntimeError, and all of them are `LoDError` too."""

import functools


class LoDError(Exception):
    """Base of every error that torch_lod raises for a wrong call. The message names the call and the argument, what was
    expected and what came."""


class LoDValueError(LoDError, ValueError):
    pass


class LoDTypeError(LoDError, TypeError):
    pass


class LoDIndexError(LoDError, IndexError):
    pass


class LoDRuntimeError(LoDError, RuntimeError):
    pass


_CLASSES = (LoDValueError, LoDTypeError, LoDIndexError, LoDRuntimeError)


def public(function):
    """Errors that come from below (plain built-in classes of the raw operators) leave as LoDError, and name the function
    that was called, not the one that it is made of."""
    name = function.__name__
    named = name[0] != "_" and name != "forward"  # modules go by their class

    def words(error) -> str:
        inner, colon, said = str(error).partition(": expected ")
        return f"{name}{colon}{said}" if named and colon and inner.isidentifier() else str(error)

    @functools.wraps(function)
    def call(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except LoDError as error:
            error.args = (words(error),)
            raise
        except (ValueError, TypeError, IndexError) as error:
            for cls in _CLASSES:
                if type(error) is cls.__bases__[1]:
                    raise cls(words(error)) from error
            raise

    return call
