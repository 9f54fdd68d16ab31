"""Opening disks of a repository for reading, by what their records say."""

import os
import tempfile

from acstor import exception, native
from acstor.repository.reading.disk_reader import DiskReader, SpooledOverlay, WrittenRun
from acstor.repository.repository import Repository
from acstor.repository.volumes.epoch_log import ClosedLogs
from acstor.repository.volumes.record import DiskState


def open_disk(
    repository: Repository, content: DiskState, size_bytes: int, directory: str | None = None
) -> DiskReader:
    """Return a disk, which the caller closes.

    Log objects that lie over its manifest are copied first, as long as they are: a volume that is
    folded has few.

    :param directory: for that copy, which has no name; None: the usual one for such files.
    :raises NotFoundError: when the manifest or a log object is not there.
    :raises CorruptError: when one is damaged.
    :raises ExhaustedError: when there is no room for the copy.
    :raises UnavailableError: when the origin cannot be reached.
    """
    manifest = None if content.manifest is None else repository.load_manifest(content.manifest)
    overlay = None
    if content.logs:
        overlay = _spooled(repository, content, size_bytes, directory)
    return DiskReader(repository.origin, size_bytes, manifest, overlay)


def _spooled(
    repository: Repository, content: DiskState, size_bytes: int, directory: str | None
) -> SpooledOverlay:
    try:
        with tempfile.TemporaryFile(prefix="acstor-log-", dir=directory, buffering=0) as file:
            descriptor = os.dup(file.fileno())
    except OSError as error:
        raise exception.UnavailableError(
            f"there is no place for a copy of a volume's log: {error.strerror}",
            hint="check the disk of the temporary directory",
        ) from error
    try:
        with native.map_errors("copying the log of a volume"):
            runs = native.spool_volume_log(
                [one.to_fields() for one in content.logs],
                size_bytes,
                descriptor,
                ClosedLogs(lambda: repository.origin, content.logs),
            )
        return SpooledOverlay(descriptor, [WrittenRun(*run) for run in runs])
    except exception.ExhaustedError as error:
        os.close(descriptor)
        # Below this is taken for the log of a host, which has a quota.
        raise exception.ExhaustedError(
            "there is no room for a copy of a volume's log",
            hint="make room in the temporary directory, or name another one by TMPDIR; the copy is "
            "as long as what was pushed since the volume's last fold",
        ) from error
    except BaseException:
        os.close(descriptor)
        raise
