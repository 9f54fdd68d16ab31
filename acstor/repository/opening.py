"""Opening an origin for a service: only one that holds a repository is believed, or written to.

A process that is started while the origin's file system is not mounted finds an empty directory at
the mount point. To who takes it for the origin there are no images, no ring and no decision, and
what it writes there is hidden, and lost, as soon as the file system is mounted.
"""

from collections.abc import Callable

from acstor import exception
from acstor.origin.base import Origin
from acstor.repository.copying.ref_kinds import COPY_REF
from acstor.repository.repository import Repository


def open_repository(open_origin: Callable[[], Origin]) -> Repository:
    """Return the repository that an origin holds; an origin without one is closed again.

    :raises UnavailableError: when it holds none now, or a backup of one; to be tried again.
    :raises CorruptError: when its ``format`` object is none.
    :raises UnsupportedError: when a newer release made it.
    """
    origin = open_origin()
    try:
        repository = Repository.open(origin)
        refuse_backup(origin)
        return repository
    except exception.NotFoundError as error:
        origin.close()
        raise exception.UnavailableError(
            "the origin holds no repository: mount its file system where [origin] url says, or "
            "make a new one with 'acstor repository init'",
            hint="nothing was written there; services try it again by themselves",
        ) from error
    except BaseException:
        origin.close()
        raise


def refuse_backup(origin: Origin) -> None:
    """Refuse a copy that was not made to be used: its volumes' epochs would be given out twice.

    :raises UnavailableError: when it is one.
    """
    if origin.get_ref(COPY_REF) is not None:
        raise exception.UnavailableError(
            "the origin is a backup of a repository",
            hint="let [origin] url name the repository, or make another one of the backup with "
            "'acstor repository copy --restore'",
        )
