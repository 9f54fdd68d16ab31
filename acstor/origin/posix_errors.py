"""The one table from errno to the errors of :mod:`acstor.exception`."""

import contextlib
import errno
import os
from collections.abc import Iterator

from acstor import exception

_UNAVAILABLE = frozenset(
    {
        errno.EIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.ENOTCONN,
        errno.ESHUTDOWN,
        errno.EREMOTEIO,
        errno.EAGAIN,
        errno.EBUSY,
        errno.ENOLCK,
    }
)
_EXHAUSTED = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.EMLINK}
)
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def from_os_error(error: OSError, what: str) -> exception.AcstorError:
    """Return the error to raise for ``error``, which happened while doing ``what``."""
    code = error.errno or 0
    text = f"{what}: {os.strerror(code) if code else error}"
    if code == errno.ENOENT:
        return exception.NotFoundError(text)
    if code in _UNAVAILABLE:
        return exception.UnavailableError(
            text, hint="check the disk or the mount of the origin and the kernel's log"
        )
    if code in _EXHAUSTED:
        return exception.ExhaustedError(
            text, hint="make room in the origin ('acstor gc' frees what no image needs)"
        )
    if code in _DENIED:
        return exception.InvalidError(
            text, hint="give the user of this process access to the origin's directory"
        )
    if code in (errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.EFAULT):
        return exception.InvalidError(text)
    return exception.InternalError(text)


@contextlib.contextmanager
def map_errors(what: str) -> Iterator[None]:
    """Turn an ``OSError`` of the body into an error of :mod:`acstor.exception`."""
    try:
        yield
    except OSError as error:
        raise from_os_error(error, what) from error
