"""Sealing files by fs-verity, where kernel and file system have it.

The kernel then refuses to write the file, and compares each page of it with a tree of hashes when
it is read from the disk: what the disk damages is an error for the guest, never wrong bytes.
"""

import errno
import fcntl
import os
import struct

_ENABLE = 0x40806685
"""``FS_IOC_ENABLE_VERITY`` of ``linux/fsverity.h``: _IOW('f', 133, 128 bytes)."""
_ARGUMENT = struct.Struct("<IIIIQIIQ88x")
"""``struct fsverity_enable_arg``: version, algorithm, block size, salt's and signature's sizes and
addresses."""
_VERSION = 1
_SHA256 = 1
_BLOCK_BYTES = 4096
_NOT_THERE = frozenset(
    {errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EACCES}
)
"""Errors of kernels and file systems without it, or of those that do not let this process."""


def seal(descriptor: int) -> bool:
    """Seal a file; return False where that cannot be had.

    :param descriptor: open for reading only; nobody has the file open for writing.
    :raises OSError: when it fails for another reason, such as a full disk.
    """
    argument = _ARGUMENT.pack(_VERSION, _SHA256, _BLOCK_BYTES, 0, 0, 0, 0, 0)
    try:
        fcntl.ioctl(descriptor, _ENABLE, argument)
    except OSError as error:
        if error.errno == errno.EEXIST:  # it is sealed already
            return True
        if error.errno in _NOT_THERE:
            return False
        raise OSError(error.errno, f"fs-verity: {os.strerror(error.errno or 0)}") from error
    return True
