"""The distribution's bindings of librados and librbd, which PyPI does not have.

Where ``import rados`` fails, as in a virtual environment without the system's packages, the
extension module of the package python3-rados is loaded from where the distribution has it: that
file alone, so that nothing else of the system's packages gets into the environment. It has to be of
the same minor version of Python. So it is with ``rbd``, which needs ``rados``.
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
RADOS = "rados"
RBD = "rbd"
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


def load(name: str = RADOS) -> Any:
    """Return the module of that name.

    :param name: :data:`RADOS`, or :data:`RBD`, before which the other one is loaded.
    :raises UnsupportedError: when it cannot be loaded.
    """
    if name != RADOS:
        load(RADOS)
    with _lock:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            return _load_from(name, find(name=name), error)


def find(
    folders: tuple[str, ...] = (*FOLDERS, *VERSIONED_FOLDERS), name: str = RADOS
) -> str | None:
    """Return the path of the distribution's module for this Python, None where there is none."""
    for folder in folders:
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            path = os.path.join(folder, name + suffix)
            if os.path.isfile(path):
                return path
    return None


def _load_from(name: str, path: str | None, reason: ImportError) -> Any:
    try:
        spec = importlib.util.spec_from_file_location(name, path) if path else None
        if spec is None or spec.loader is None:
            raise reason
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        raise exception.UnsupportedError(
            f"the Python binding of lib{name} cannot be loaded: {error}",
            hint=f"install the package python3-{name}, and use the distribution's version of "
            "Python",
        ) from error
    sys.modules[name] = module
    return module
