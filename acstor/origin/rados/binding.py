"""The distribution's binding of librados, which PyPI does not have, and what it does not do.

Where ``import rados`` fails, as in a virtual environment without the system's packages, the
extension module of the package python3-rados is loaded from where the distribution has it: that
file alone, so that nothing else of the system's packages gets into the environment. It has to be of
the same minor version of Python.
"""

import dataclasses
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from acstor import exception
from acstor.origin.rados.connection import Connection
from acstor.origin.rados.listing import Lister, PoolLister

FOLDERS = ("/usr/lib/python3/dist-packages", "/usr/lib64/python3/site-packages")
"""Folders of modules of Debian and its kin; others have theirs with the version in the name."""
_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
VERSIONED_FOLDERS = tuple(f"{top}/{_VERSION}/site-packages" for top in ("/usr/lib64", "/usr/lib"))
_NAME = "rados"
_lock = threading.Lock()


@dataclasses.dataclass(frozen=True)
class Binding:
    """Everything that librados is used through.

    :param rados: the module.
    :param lister: makes what lists pools.
    """

    rados: Any
    lister: Callable[[Connection], Lister]


def distributed() -> Binding:
    """Return the distribution's.

    :raises UnsupportedError: when it cannot be loaded.
    """
    return Binding(load(), PoolLister)


def load() -> Any:
    """Return the module ``rados``.

    :raises UnsupportedError: when it cannot be loaded.
    """
    with _lock:
        try:
            return importlib.import_module(_NAME)
        except ImportError as error:
            return _load_from(find(), error)


def find(folders: tuple[str, ...] = (*FOLDERS, *VERSIONED_FOLDERS)) -> str | None:
    """Return the path of the distribution's module for this Python, None where there is none."""
    for folder in folders:
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            path = os.path.join(folder, _NAME + suffix)
            if os.path.isfile(path):
                return path
    return None


def _load_from(path: str | None, reason: ImportError) -> Any:
    try:
        spec = importlib.util.spec_from_file_location(_NAME, path) if path else None
        if spec is None or spec.loader is None:
            raise reason
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        raise exception.UnsupportedError(
            f"the Python binding of librados cannot be loaded: {error}",
            hint="install the package python3-rados, and use the distribution's version of Python",
        ) from error
    sys.modules[_NAME] = module
    return module
