"""The decorator of everything that is compiled: one place for numba's options, typed.

Chosen over vectorised numpy by measurement: a boot storm is some hundred thousand small events,
each of which changes a few numbers, and numpy pays microseconds per operation whatever its size.

What was compiled is kept per user. Numba looks only at the file of a function to tell whether it
has changed, not at those of the functions that it calls; so the place is named by a digest of all
modules that are compiled.
"""

import hashlib
import os
import pathlib
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

_COMPILED_MODULES = (
    "compiled",
    "fairness",
    "topology",
    "world",
    "rules",
    "events",
    "slow_looks",
    "peer_states",
    "estimates",
    "transfers",
    "plans",
    "stores",
    "flights",
    "kernel",
)
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _cache_directory() -> pathlib.Path:
    digest = hashlib.blake2b(digest_size=8)
    for name in _COMPILED_MODULES:
        digest.update(pathlib.Path(__file__).with_name(f"{name}.py").read_bytes())
    root = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(root) / "acstor-sim" / digest.hexdigest()


numba.config.CACHE_DIR = str(_cache_directory())


def compiled(function: _Function) -> _Function:
    """Compile a function at its first call."""
    return cast(_Function, numba.njit(cache=True, error_model="numpy")(function))
