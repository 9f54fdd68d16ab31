"""Work on local files: one job at a time; one that is killed anywhere is redone."""

import contextlib
import enum
import errno
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from acstor import exception
from acstor.agent.reconcilers.local_files.content import ImageContent
from acstor.agent.reconcilers.local_files.making import FileMaker, NoLongerWantedError, Pace
from acstor.agent.reconcilers.local_files.room import Budget
from acstor.agent.reconcilers.local_files.states import LocalFileEvent, LocalFileState
from acstor.agent.reconcilers.local_files.table import FINISHED, LocalFileTable
from acstor.backoff import BackOff
from acstor.drivers.nova.image_links.local_directory import (
    file_name,
    image_of_file,
    partial_name,
)
from acstor.origin.base import Origin
from acstor.rate_limit import RateLimit

LOG = logging.getLogger(__name__)

RETRY = BackOff(first=10.0, longest=600.0)
"""Delays before what failed is tried again."""
ROOM_RETRY = 300.0
"""Seconds after which it is looked again whether there is room."""
_S, _E = LocalFileState, LocalFileEvent

MakeMaker = Callable[[str], FileMaker]
"""Returns what makes files beside the base files of a directory."""
LoadContent = Callable[[Origin, str], ImageContent]
"""Returns the content of a manifest, by its name."""


class JobKind(enum.Enum):
    """Kind of job."""

    TAKE_STOCK = "take stock"
    """Compare what is in the directory with what is known."""
    REMOVE = "remove"
    TEND = "tend"
    """Look at the finished files and at the room."""
    COMPARE = "compare"
    """Read a finished file from the disk and compare it."""
    MAKE = "make"


@dataclass(frozen=True)
class Job:
    """One job."""

    kind: JobKind
    image_id: str = ""
    origin: Origin | None = None

    @property
    def key(self) -> str:
        """Subject whose failures delay it: the making of a file does not delay its removal."""
        return (
            f"{self.kind.value} {self.image_id}" if self.kind is JobKind.REMOVE else self.image_id
        )


@dataclass(frozen=True)
class WorkSettings:
    """Limits on the work; see ``[local_files]``."""

    budget: Budget
    rate: int
    """Bytes per second at which files are made."""
    verify_interval: float
    """Seconds; 0: finished files are not compared again."""
    verify_rate: int
    """Bytes per second at which they are."""


class LocalFileWork:
    """Does the jobs.

    :param refuse: returns why there may be no local files beside some base files; None: there may.
    :param on_done: told ``made``, ``failed``, ``damaged`` or ``removed``, for metrics.
    :param clock: monotonic seconds.
    :param now: POSIX seconds.
    """

    def __init__(
        self,
        table: LocalFileTable,
        make_maker: MakeMaker,
        load: LoadContent,
        settings: WorkSettings,
        *,
        refuse: Callable[[str], str | None] = lambda _: None,
        on_done: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.condition = threading.Condition(threading.RLock())
        """Of the table and of everything here."""
        self.directory: str | None = None
        """Of Nova's base files."""
        self.problem: str | None = None
        """Failure of the last look at the directory; None: it went well."""
        self.refusal: str | None = None
        """Reason against local files in the directory; None: there is none."""
        self._table = table
        self._make_maker = make_maker
        self._load = load
        self._budget = settings.budget
        self._making = RateLimit(settings.rate, clock)
        self._comparing = RateLimit(settings.verify_rate, clock)
        self._refuse = refuse
        self._on_done = on_done
        self._clock = clock
        self._now = now
        self._maker: FileMaker | None = None
        self._failures: dict[str, int] = {}
        self._retry_at: dict[str, float] = {}
        self._stopping = threading.Event()

    def use(self, directory: str) -> None:
        """Work beside these base files from now on."""
        self.directory = directory
        self._maker = self._make_maker(directory)
        self.problem = self.refusal = None

    def stop(self) -> None:
        """Have the job under way end soon."""
        self._stopping.set()

    def retry_at(self, job: Job) -> float:
        """Return from when on a job may be tried again, monotonic seconds."""
        return self._retry_at.get(job.key, 0.0)

    def do(self, job: Job) -> bool:
        """Do one job; return whether it is done. Raises nothing but what kills."""
        with self.condition:
            maker = self._maker
        if maker is None:
            return False
        try:
            match job.kind:
                case JobKind.TAKE_STOCK:
                    self._take_stock(maker)
                case JobKind.REMOVE:
                    self._remove(maker, job.image_id)
                case JobKind.TEND:
                    self._tend(maker)
                case JobKind.COMPARE:
                    self._compare(maker, job)
                case JobKind.MAKE:
                    self._make(maker, job)
        except NoLongerWantedError:
            LOG.info("local file of image %s: not wanted any more", job.image_id)
            return False
        except (exception.AcstorError, OSError) as error:
            self._note_failure(maker, job, exception.one_line(error))
            return False
        except Exception as error:
            LOG.exception("a job of local files failed: %s", job.kind.value)
            self._note_failure(maker, job, f"{type(error).__name__}: {error}")
            return False
        self._failures.pop(job.key, None)
        if not job.image_id:
            self.problem = None
        return True

    # Jobs

    def _take_stock(self, maker: FileMaker) -> None:
        """Remove what a killed process has left, and go on with what it has finished."""
        names = set(maker.names())
        with self.condition:
            for image_id, known in list(self._table.files.items()):
                if known.state is _S.WRITING or (
                    known.state is _S.VERIFYING and file_name(image_id) not in names
                ):
                    self._table.move(image_id, _E.FAIL, data_bytes=0)
            images = {file_name(image_id): image_id for image_id in self._table.files}
        for name in sorted(names):
            state = self._table.state(images[name]) if name in images else None
            if state in FINISHED or state in {_S.VERIFYING, _S.UNLINKING}:
                continue
            found = image_of_file(name)
            if found is None or state is not None:
                maker.remove(name)
            else:  # a link may lead to it
                with self.condition:
                    self._table.find(found)
        self.refusal = None if self.directory is None else self._refuse(self.directory)

    def _remove(self, maker: FileMaker, image_id: str) -> None:
        maker.remove(partial_name(image_id))
        maker.remove(file_name(image_id))
        with self.condition:
            self._table.move(image_id, _E.REMOVED)
        self._on_done("removed")

    def _tend(self, maker: FileMaker) -> None:
        with self.condition:
            finished = [(each, self._table.files[each]) for each in self._table.finished]
        for image_id, known in finished:
            if not maker.refresh(image_id, known.size_bytes):
                self._note_damage(image_id, "it is gone, or has another size")
        space = maker.space()
        with self.condition:
            is_over = self._table.taken_bytes > self._budget.capacity_bytes
            last = self._table.in_states(_S.READY, _S.LINKED)[-1:]
            for image_id in last if is_over or self._budget.is_short(space) else ():
                self._table.move(image_id, _E.DROP, reason="its room is needed")
                self._retry_at[image_id] = self._clock() + ROOM_RETRY

    def _compare(self, maker: FileMaker, job: Job) -> None:
        """Compare a finished file with its image: one that was found, or is due."""
        image_id = job.image_id
        with self.condition:
            known = self._table.files.get(image_id)
        if known is None or job.origin is None:
            return
        content = self._load(job.origin, known.manifest)
        pace = self._pace(image_id, self._comparing, known.state)
        try:
            is_right = maker.is_right(file_name(image_id), content, pace)
        except OSError as error:
            # fs-verity, or the disk itself, says so of what is damaged.
            if error.errno not in (errno.EIO, errno.EBADMSG, errno.ENOENT):
                raise
            is_right = False
        if not is_right and known.state is not _S.VERIFYING:
            self._note_damage(image_id, "what the disk holds is not the image")
        elif not is_right:
            maker.remove(file_name(image_id))
            raise exception.CorruptError("what was found there is not the image: made anew")
        else:
            self._note_right(image_id, content, known.state)

    def _note_right(self, image_id: str, content: ImageContent, former: LocalFileState) -> None:
        changes = {
            "verified_at": self._now(),
            "size_bytes": content.size_bytes,
            "data_bytes": content.data_bytes,
        }
        with self.condition:
            if self._table.state(image_id) is not former:
                return
            if former is _S.VERIFYING:
                self._table.move(image_id, _E.VERIFIED, **changes)
            else:
                self._table.note(image_id, **changes)

    def _make(self, maker: FileMaker, job: Job) -> None:
        image_id = job.image_id
        content = self._begun(maker, job)
        if content is None:
            return
        maker.write(image_id, content, self._pace(image_id, self._making, _S.WRITING, maker))
        with self._still(image_id, _S.WRITING):
            self._table.move(image_id, _E.WRITTEN)
        pace = self._pace(image_id, self._making, _S.VERIFYING)
        if not maker.is_right(partial_name(image_id), content, pace):
            raise exception.CorruptError(
                "the disk does not hold what was written",
                hint="look for errors of the disk of Nova's instances_path in the kernel's log",
            )
        with self._still(image_id, _S.VERIFYING):
            pass
        is_sealed = maker.finish(image_id)
        with self._still(image_id, _S.VERIFYING):
            changes = {"verified_at": self._now(), "is_sealed": is_sealed}
            self._table.move(image_id, _E.VERIFIED, **changes)
        self._on_done("made")

    # Parts of jobs

    def _begun(self, maker: FileMaker, job: Job) -> ImageContent | None:
        """Begin to make a file if there is room; return its content."""
        image_id = job.image_id
        with self.condition:
            known = self._table.files.get(image_id)
        if known is None or job.origin is None or known.state is not _S.WAITING:
            return None
        content = self._load(job.origin, known.manifest)
        needed, space = content.data_bytes, maker.space()
        with self.condition:
            taken = self._table.taken_bytes
            refusal = self.refusal or self._budget.refusal(needed, taken, space)
            if self._table.state(image_id) is not _S.WAITING:
                return None
            if refusal is not None:
                self._table.note(image_id, reason=refusal)
                self._retry_at[image_id] = self._clock() + ROOM_RETRY
                return None
            sizes = {"size_bytes": content.size_bytes, "data_bytes": needed}
            self._table.move(image_id, _E.BEGIN, **sizes)
        return content

    @contextlib.contextmanager
    def _still(self, image_id: str, state: LocalFileState) -> Iterator[None]:
        with self.condition:
            if self._stopping.is_set() or self._table.state(image_id) is not state:
                raise NoLongerWantedError
            yield

    def _pace(
        self,
        image_id: str,
        limit: RateLimit,
        state: LocalFileState,
        maker: FileMaker | None = None,
    ) -> Pace:
        """Return what is called with the bytes of each piece.

        :param maker: where the room is looked at as well.
        """

        def pace(size: int) -> None:
            with self._still(image_id, state):
                pass
            if maker is not None and self._budget.is_short(maker.space()):
                raise exception.ExhaustedError("others took the room while it was written")
            if self._stopping.wait(limit.take(size)):
                raise NoLongerWantedError

        return pace

    def _note_damage(self, image_id: str, reason: str) -> None:
        with self.condition:
            if self._table.state(image_id) not in FINISHED:
                return
            self._table.move(image_id, _E.DAMAGE, reason=reason)
        LOG.error(
            "local file of image %s: %s; guests that have it open should be restarted: "
            "'acstor image users' names their hosts",
            image_id,
            reason,
        )
        self._on_done("damaged")

    def _note_failure(self, maker: FileMaker, job: Job, reason: str) -> None:
        image_id = job.image_id
        failures = self._failures[job.key] = self._failures.get(job.key, 0) + 1
        with self.condition:
            now = self._clock()
            self._retry_at = {key: at for key, at in self._retry_at.items() if at > now}
            self._retry_at[job.key] = now + RETRY.seconds(failures)
            state = self._table.state(image_id) if image_id else None
            if not image_id:
                self.problem = reason
            elif state in {_S.WRITING, _S.VERIFYING}:
                self._table.move(image_id, _E.FAIL, reason=reason, data_bytes=0)
            elif state is not None:
                self._table.note(image_id, reason=reason)
        if job.kind is JobKind.MAKE:
            self._on_done("failed")
            with contextlib.suppress(OSError):
                maker.remove(partial_name(image_id))
