"""The agent's reconciler of keeping the links, on a thread of its own.

Nova's directories may be on a file system that hangs, and Nova's lock of an image is held while
every overlay is looked at; neither is to hold up a pass of the agent. So a pass only says what is
wanted, and tells what the last completed look at the links has found.
"""

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from oslo_config import cfg

from acstor import exception
from acstor.agent.reconciler import HostSnapshot
from acstor.agent.reconcilers.usage_publication import LocalUse
from acstor.conf.types import KIB, format_size
from acstor.drivers.nova.image_links import known_links, nova_settings
from acstor.drivers.nova.image_links.file_operations import FileOperations
from acstor.drivers.nova.image_links.known_links import KnownLinks
from acstor.drivers.nova.image_links.link_keeper import DesiredLinks, LinkKeeper, LinkReport
from acstor.drivers.nova.image_links.link_states import LinkState
from acstor.drivers.nova.image_links.only_linker import OnlyLinker
from acstor.drivers.nova.image_links.planting import Planter

LOG = logging.getLogger(__name__)

HEAD_BYTES_MIN = 256 * KIB
"""Bytes of a base file that Nova reads before each boot (``images.get_image_format``)."""
TAIL_BYTES_MIN = 64 * KIB
"""Bytes at the end of a disk that QEMU reads when it opens and describes it."""
OVERDUE_SECONDS = 60.0
"""Longest time of a pass over the links before it is a problem, seconds."""

LinkCounts = Callable[[Mapping[str, int]], None]


@dataclass
class _Done:
    """Result of the last completed pass over the links."""

    report: LinkReport | None = None
    failure: str | None = None


class ImageLinksReconciler:
    """Keeps the links of one host; a ``Reconciler`` and an ``ImageUser``.

    :param conf: the agent's checked configuration.
    :param known: what was known at the end of the process before.
    :param count_links: told the number of links by state after each pass.
    :param local_files: returns the ids of the images whose links may lead to local files.
    :param files: changes Nova's directories.
    :param clock: monotonic seconds.
    """

    name = "image links"

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        known: KnownLinks,
        *,
        count_links: LinkCounts = lambda counts: None,
        local_files: Callable[[], frozenset[str]] = frozenset,
        files: FileOperations | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._conf = conf
        self._files = files or FileOperations()
        self._count_links = count_links
        self._local_files = local_files
        self._clock = clock
        self._keeper = LinkKeeper(known, conf.image_links.scan_interval, clock)
        self._known_path = known_links.path_in(conf.state_path)
        self._saved: KnownLinks | None = known
        self._only = OnlyLinker(conf.state_path)
        self._settings: nova_settings.NovaSettings | None = None
        self._signature: nova_settings.Signature | None = None
        self._condition = threading.Condition()  # of everything below
        self._desired: DesiredLinks | None = None
        self._busy_with: DesiredLinks | None = None
        self._busy_since = 0.0
        self._unsettled_local: frozenset[str] = frozenset()
        self._done = _Done()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="image-links", daemon=True)

    # What the agent calls

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def reconcile(self, snapshot: HostSnapshot) -> Mapping[str, str]:
        """Say what is wanted; return what is wrong."""
        with self._condition:
            self._desired = self._wanted(snapshot)
            self._condition.notify()
            done = self._done
            overdue = self._clock() - self._busy_since if self._busy_with is not None else 0.0
        problems: dict[str, str] = dict(done.report.problems) if done.report else {}
        if overdue > OVERDUE_SECONDS:
            problems[self.name] = f"Nova's directories have not answered for {overdue:.0f} s"
        elif done.failure is not None:
            problems[self.name] = done.failure
        return problems

    def stop(self, timeout: float) -> None:
        """End the thread; one that hangs in Nova's directories is left behind."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)
        if not self._thread.is_alive():
            self._only.give_up()

    def images_needed(self) -> frozenset[str] | None:
        """Return the images that must stay attached: in use, or with a link."""
        with self._condition:
            report = self._done.report
            if report is None or not report.is_use_known:
                return None
            busy = self._busy_with
            if busy is not None and busy.refusal is None:
                return report.needed | busy.ready  # any of these may be getting its link just now
            return report.needed

    def local_use(self) -> LocalUse | None:
        """Return what overlays on this host need; None: nobody has looked yet."""
        with self._condition:
            report = self._done.report
        if report is None:
            return None
        return LocalUse(
            report.users, report.unknown_bases, report.is_use_known, report.round, report.epoch
        )

    def follow_local_files(self, local_files: Callable[[], frozenset[str]]) -> None:
        """Have links lead to the local files of the images that ``local_files`` returns."""
        self._local_files = local_files

    def base_directory(self) -> str | None:
        """Return Nova's directory of base files; None: nobody has looked yet."""
        with self._condition:
            report = self._done.report
        return None if report is None else report.known.base_directory or None

    def local_links(self) -> frozenset[str] | None:
        """Return the images whose links lead to local files, or are being led there just now.

        None: nobody has looked yet.
        """
        with self._condition:
            if self._done.report is None:
                return None
            underway = [each.local for each in (self._busy_with, self._desired) if each is not None]
            return self._done.report.local.union(self._unsettled_local, *underway)

    # The look at the links

    def reconcile_links(self, desired: DesiredLinks) -> LinkReport:
        """Look once, in the calling thread.

        :raises AcstorError: when it cannot be done at all.
        :raises OSError: likewise.
        """
        self._only.take()
        settings = self._nova_settings()
        planter = Planter(settings, self._conf.dataplane.mount_point, self._conf.host, self._files)
        report = self._keeper.reconcile(settings, planter, desired)
        if report.known != self._saved:
            known_links.save(self._known_path, report.known)
            self._saved = report.known
        counts = {state.value: 0 for state in LinkState if state is not LinkState.GONE}
        for link in report.known.links.values():
            counts[link.state.value] += 1
        self._count_links(counts)
        if desired.refusal is None and settings.refusal is not None:
            return _with_problem(report, self.name, settings.refusal)
        return report

    def _nova_settings(self) -> nova_settings.NovaSettings:
        files = self._conf.image_links.nova_config_file
        signature = nova_settings.signature(files)
        if self._settings is None or signature != self._signature:
            self._settings = nova_settings.read(files)
            self._signature = signature
            if self._settings.refusal is not None:
                LOG.warning("no image links: %s", self._settings.refusal)
        return self._settings

    def _run(self) -> None:
        while (desired := self._next()) is not None:
            done = _Done(self._done.report)
            try:
                done = _Done(self.reconcile_links(desired))
            except (exception.AcstorError, OSError) as error:
                done.failure = exception.one_line(error)
            except Exception as error:
                # What is in use stays as it was last known, so nothing is detached wrongly.
                LOG.exception("a look at the image links failed")
                done.failure = f"{type(error).__name__}: {error}"
            with self._condition:
                self._done = done
                self._busy_with = None
                # A pass that failed may have moved links before, and has told of none.
                is_settled = done.failure is None
                self._unsettled_local = (
                    frozenset() if is_settled else self._unsettled_local | desired.local
                )

    def _next(self) -> DesiredLinks | None:
        with self._condition:
            self._condition.wait_for(lambda: self._desired is not None or self._is_stopping)
            if self._is_stopping:
                return None
            self._busy_with, self._desired = self._desired, None
            self._busy_since = self._clock()
            return self._busy_with

    def _wanted(self, snapshot: HostSnapshot) -> DesiredLinks:
        is_up = snapshot.status is not None and _is_connected(snapshot.status)
        attached = frozenset(snapshot.offered) | snapshot.kept if is_up else frozenset()
        registered = snapshot.registered
        return DesiredLinks(
            registered=(
                None if registered is None else registered - snapshot.closed - snapshot.unverified
            ),
            attached=attached,
            ready=attached & snapshot.pinned,
            refusal=self.refusal(),
            closed=frozenset() if registered is None else snapshot.closed & registered,
            round=0 if registered is None else snapshot.round,
            epoch="" if registered is None else snapshot.epoch,
            local=self._local_files(),
        )

    def refusal(self) -> str | None:
        """Return why our own settings forbid links."""
        if not self._conf.image_links.enabled:
            return "[image_links] enabled = false"
        for name, least in (("pin_head", HEAD_BYTES_MIN), ("pin_tail", TAIL_BYTES_MIN)):
            if self._conf.agent[name] < least:
                return (
                    f"[agent] {name} is less than {format_size(least)}: "
                    "a boot would wait for other hosts"
                )
        return None


def _is_connected(status: Mapping[str, object]) -> bool:
    fuse = status.get("fuse")
    return not (isinstance(fuse, Mapping) and fuse.get("connected") is False)


def _with_problem(report: LinkReport, what: str, problem: str) -> LinkReport:
    return dataclasses.replace(report, problems={**report.problems, what: problem})


def build(conf: cfg.ConfigOpts, count_links: LinkCounts) -> ImageLinksReconciler | None:
    """Return the reconciler of a host; None where there are no links and never were.

    :raises AcstorError: when what is known of the links is not readable.
    """
    try:
        known = known_links.load(known_links.path_in(conf.state_path))
    except exception.CorruptError as error:
        # The links themselves say which they are; only the ids of unregistered images are lost.
        LOG.error("%s; %s", error, error.hint)
        known = KnownLinks()
    if known is None and not conf.image_links.enabled:
        return None
    return ImageLinksReconciler(conf, known or KnownLinks(), count_links=count_links)
