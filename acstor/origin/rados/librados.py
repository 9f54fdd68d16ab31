"""The functions of librados that list a pool, by their C interface, which is stable.

The distribution's binding has them too, and takes any error for the end of the listing
(``ObjectIterator``: a result below zero ends it). What collects garbage would then take for absent
what it was not told of. So these are called without it.

Every argument's type is declared: a wrong one would damage the memory of the process.
"""

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

from acstor import exception

NAME = "librados.so.2"
_HANDLE, _TEXT, _INT, _LONG = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int64
_NEW_HANDLE, _NEW_TEXT = ctypes.POINTER(_HANDLE), ctypes.POINTER(_TEXT)
_FUNCTIONS: dict[str, tuple[Any, Sequence[Any]]] = {
    "rados_create": (_INT, [_NEW_HANDLE, _TEXT]),
    "rados_conf_read_file": (_INT, [_HANDLE, _TEXT]),
    "rados_conf_set": (_INT, [_HANDLE, _TEXT, _TEXT]),
    "rados_connect": (_INT, [_HANDLE]),
    "rados_shutdown": (None, [_HANDLE]),
    "rados_pool_lookup": (_LONG, [_HANDLE, _TEXT]),
    "rados_ioctx_create": (_INT, [_HANDLE, _TEXT, _NEW_HANDLE]),
    "rados_ioctx_get_id": (_LONG, [_HANDLE]),
    "rados_ioctx_set_namespace": (None, [_HANDLE, _TEXT]),
    "rados_ioctx_destroy": (None, [_HANDLE]),
    "rados_nobjects_list_open": (_INT, [_HANDLE, _NEW_HANDLE]),
    "rados_nobjects_list_next": (_INT, [_HANDLE, _NEW_TEXT, _NEW_TEXT, _NEW_TEXT]),
    "rados_nobjects_list_close": (None, [_HANDLE]),
}
"""Result and arguments, as ``rados/librados.h`` has them."""


@functools.cache
def load() -> Any:
    """Return the library.

    :raises UnsupportedError: when it is not installed.
    """
    try:
        library = ctypes.CDLL(NAME)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, list(arguments)
    except (OSError, AttributeError) as error:
        raise exception.UnsupportedError(
            f"{NAME} cannot be loaded: {error}", hint="install the package python3-rados"
        ) from error
    return library
