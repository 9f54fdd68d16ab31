"""Pins: hard links to the disks of servers, so that their last state outlives Nova's deleting them.

Nova unlinks a server's files and nothing else, also where its API deletes while the host is down.
A link in another folder of the same file system keeps the disk, at no cost until the name is gone.
It is set where somebody asks for a version at the end of a server: by the flavor's extra spec
``acstor:version_on``, the image's property ``acstor_version_on`` (both are in the description of
the guest), or by the service of versions, which knows the server's metadata.

``doc/source/reference/formats/capture-spool.rst`` describes the folder.
"""

import contextlib
import dataclasses
import datetime
import json
import logging
import os
import shutil
import stat
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping

from acstor import exception, files, untrusted_json
from acstor.agent.captures.disk_choice import reason_against
from acstor.agent.captures.orders import guest_of
from acstor.agent.captures.sources.uefi_variables import read_nvram
from acstor.agent.hypervisor.base import Hypervisor, LifecycleEvent
from acstor.agent.hypervisor.domain_xml import Guest
from acstor.drivers.nova.image_links.nova_settings import PINS_DIRECTORY
from acstor.repository.versions.locks import parse_time, time_text
from acstor.repository.versions.record import Trigger
from acstor.repository.versions.version_refs import utc_now
from acstor.versions.host_capture.triggers import EXTRA_SPEC, IMAGE_PROPERTY, wanted_triggers

LOG = logging.getLogger(__name__)

PIN_VERSION = 1
"""Version of a pin's description that this build writes; it reads this one only."""
DESCRIPTION = "pin.json"
LOOK_SECONDS = 60.0
"""Seconds between two looks at all guests; what starts or stops meanwhile is told."""
PINNING = frozenset({Trigger.DELETE, Trigger.SHUTDOWN, Trigger.REBUILD, Trigger.RESIZE})
"""Triggers for which a disk is pinned."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pin:
    """Disks of a server that are kept."""

    guest: Guest
    """As it was when it was pinned; not active, the paths those of the links."""
    folder: str
    pinned_at: datetime.datetime
    """Moment of the disks: the guest stopped then; or, while it runs, when the pin was set."""
    is_final: bool
    """True once the guest has stopped: what is pinned is written to no more, unless it is started
    again."""


class PinKeeper:
    """Keeps the pins of one host.

    :param instances_path: Nova's; None: it is not known, nothing is pinned.
    :param keep_seconds: how long a pin is kept that nobody captures, from the guest's end on.
    :param free_percent: share of the file system below which the oldest pins go.
    """

    def __init__(
        self,
        hypervisor: Hypervisor,
        instances_path: Callable[[], str | None],
        keep_seconds: float,
        free_percent: float,
        *,
        now: Callable[[], datetime.datetime] = utc_now,
        look: Callable[[str], os.statvfs_result] = os.statvfs,
    ) -> None:
        self._hypervisor = hypervisor
        self._instances_path = instances_path
        self._keep_seconds = keep_seconds
        self._free_percent = free_percent
        self._now = now
        self._look = look
        self._lock = threading.RLock()  # of the folder, and of what follows
        self._asked: dict[str, frozenset[Trigger]] = {}
        self._captured: set[str] = set()
        """Folders of pins whose disks are in the origin."""
        self._moved: set[str] = set()
        """Guests that run on another host, and are about to be forgotten here."""
        self._stopping = threading.Event()
        self._due = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pins", daemon=True)
        self.problems: dict[str, str] = {}

    def start(self) -> None:
        """Hear of guests, and start the thread."""
        try:
            self._hypervisor.watch(self.take_event)
        except exception.AcstorError as error:
            self.problems["pins"] = exception.one_line(error)
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread; pins stay."""
        self._stopping.set()
        self._due.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def follow(self, server: str, triggers: Iterable[Trigger]) -> None:
        """Note at which events versions of a server are wanted, besides what its guest says."""
        with self._lock:
            self._asked[server] = frozenset(triggers)
        self._due.set()

    def newest(self, server: str) -> Pin | None:
        """Return the newest pin of a server's last state, None where there is none."""
        with self._lock:
            found = [pin for pin in self._pins_of(server) if pin.is_final]
        return max(found, key=lambda pin: pin.pinned_at, default=None)

    def note_captured(self, folder: str) -> None:
        """Note that what a pin keeps is in the origin: it is needed no more."""
        with self._lock:
            self._captured.add(folder)
        self._due.set()

    def take_event(self, server: str, event: LifecycleEvent) -> None:
        """Take an event of a guest; returns at once.

        A guest that has stopped because it moved is no end of a server: what is left of it here
        is no state of it any more.
        """
        with self._lock:
            if event is LifecycleEvent.STOPPED:
                self._finish(server)
            elif event is LifecycleEvent.MIGRATED:
                self._moved.add(server)
            elif event is LifecycleEvent.STARTED:
                self._moved.discard(server)
        self._due.set()

    def look_once(self) -> None:
        """Pin what is to be pinned, and let go what is not needed.

        :raises AcstorError: when the hypervisor or the folder cannot be reached, or a guest's disks
            cannot be pinned; those of others are.
        :raises OSError: likewise.
        """
        if self._instances_path() is None:
            return
        guests = {guest.server: guest for guest in self._hypervisor.guests()}
        failures: list[exception.AcstorError | OSError] = []
        with self._lock:
            for server, guest in guests.items():
                if server in self._moved:
                    self._remove_all(server)
                elif self._triggers(guest) & PINNING:
                    try:
                        self._pin(guest)
                    except (OSError, exception.AcstorError) as error:
                        failures.append(error)  # the others are pinned all the same
                elif server in self._asked:
                    # Not of servers that nobody has spoken of since this process was started.
                    self._remove_all(server)
            for server in self._moved - guests.keys():
                self._remove_all(server)
            self._moved &= guests.keys()
            for server in self._servers():
                self._settle(server, guests.get(server))
            self._evict()
        if failures:
            raise failures[0]

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._due.clear()
            try:
                self.look_once()
                self.problems.pop("pins", None)
            except (OSError, exception.AcstorError) as error:
                self.problems["pins"] = exception.one_line(error)
            except Exception as error:
                LOG.exception("a look at the pins failed")
                self.problems["pins"] = exception.one_line(error)
            self._due.wait(LOOK_SECONDS)

    def _triggers(self, guest: Guest) -> frozenset[Trigger]:
        told = self._asked.get(guest.server, frozenset())
        for text in (
            guest.extra_specs.get(EXTRA_SPEC, ""),
            guest.image_properties.get(IMAGE_PROPERTY, ""),
        ):
            told |= wanted_triggers(text).triggers
        return told

    # One server

    def _pin(self, guest: Guest) -> None:
        """Pin the disks of a guest, unless they are."""
        disks = [disk for disk in guest.disks if reason_against(disk) is None and disk.path]
        inodes = {disk.device: _identity(disk.path or "") for disk in disks}
        if not disks or None in inodes.values():
            return
        for pin in self._pins_of(guest.server):
            if {disk.device: _identity(disk.path or "") for disk in pin.guest.disks} == inodes:
                if pin.is_final and guest.is_active:
                    self._describe(dataclasses.replace(pin, is_final=False))
                return
        folder = os.path.join(self._folder(), guest.server, str(uuid.uuid4()))
        os.makedirs(folder, mode=0o700)
        linked = []
        try:
            for disk in disks:
                path = os.path.join(folder, disk.device)
                os.link(disk.path or "", path, follow_symlinks=False)
                if _identity(path) != inodes[disk.device]:
                    raise exception.ConflictError(f"{disk.path} was replaced while it was pinned")
                linked.append(dataclasses.replace(disk, path=path))
            nvram = self._keep_nvram(guest, folder)
            kept = dataclasses.replace(
                guest, is_active=False, disks=tuple(linked), nvram=nvram, is_agent_connected=False
            )
            self._describe(Pin(kept, folder, self._now(), is_final=not guest.is_active))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _keep_nvram(self, guest: Guest, folder: str) -> str | None:
        """Copy the UEFI variables: the file is not on the file system of the disks."""
        content = read_nvram(guest.nvram)
        if content is None:
            return None
        path = os.path.join(folder, "nvram")
        files.write_atomically(path, content)
        return path

    def _finish(self, server: str) -> None:
        """Note that a guest has stopped: from now on its pinned disks are its last state."""
        for pin in self._pins_of(server):
            if not pin.is_final:
                self._describe(dataclasses.replace(pin, is_final=True, pinned_at=self._now()))

    def _settle(self, server: str, guest: Guest | None) -> None:
        """Let go pins that are not needed, and note the end of a guest that nobody told of."""
        if guest is None or not guest.is_active:
            self._finish(server)
        pins = self._pins_of(server)
        present = set() if guest is None else {_identity(disk.path or "") for disk in guest.disks}
        for pin in pins:
            is_present = any(_identity(disk.path or "") in present for disk in pin.guest.disks)
            age = (self._now() - pin.pinned_at).total_seconds()
            is_over = pin.is_final and age > self._keep_seconds
            if not is_present and (is_over or pin.folder in self._captured):
                shutil.rmtree(pin.folder, ignore_errors=True)
                self._captured.discard(pin.folder)
        if guest is None and not self._pins_of(server):
            self._asked.pop(server, None)
            self._remove_all(server)

    def _evict(self) -> None:
        """Let the oldest pins go while the file system has too little room."""
        pins = [pin for server in self._servers() for pin in self._pins_of(server)]
        for pin in sorted(pins, key=lambda one: one.pinned_at):
            found = self._look(self._folder())
            if found.f_bavail >= found.f_blocks * self._free_percent / 100:
                return
            if all(_links(disk.path or "") == 1 for disk in pin.guest.disks):
                LOG.warning("the pin of server %s goes: Nova needs the room", pin.guest.server)
                shutil.rmtree(pin.folder, ignore_errors=True)

    # The folder

    def _folder(self) -> str:
        path = self._instances_path()
        if path is None:
            raise exception.UnavailableError("Nova's instances_path is not known")
        folder = os.path.join(path, PINS_DIRECTORY)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        for name in (os.path.dirname(folder), folder):
            status = os.lstat(name)
            # Nova's user owns the folder above, and may put anything there.
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                raise exception.UnavailableError(
                    f"{name} is no directory of this user", hint="remove it"
                )
        return folder

    def _servers(self) -> list[str]:
        try:
            return sorted(os.listdir(self._folder()))
        except FileNotFoundError:
            return []

    def _pins_of(self, server: str) -> list[Pin]:
        if self._instances_path() is None:
            return []
        parent = os.path.join(self._folder(), server)
        found = []
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for name in sorted(os.listdir(parent)):
                folder = os.path.join(parent, name)
                try:
                    with open(os.path.join(folder, DESCRIPTION), "rb") as file:
                        found.append(_parse(file.read(), folder))
                except (FileNotFoundError, ValueError):
                    # Half made, or of another release: what it keeps is not known.
                    shutil.rmtree(folder, ignore_errors=True)
        return found

    def _describe(self, pin: Pin) -> None:
        files.write_atomically(os.path.join(pin.folder, DESCRIPTION), _encode(pin))

    def _remove_all(self, server: str) -> None:
        shutil.rmtree(os.path.join(self._folder(), server), ignore_errors=True)


def _encode(pin: Pin) -> bytes:
    fields = {
        "version": PIN_VERSION,
        "guest": dataclasses.asdict(pin.guest),
        "pinned_at": time_text(pin.pinned_at),
        "is_final": pin.is_final,
    }
    return json.dumps(fields, sort_keys=True).encode()


def _parse(content: bytes, folder: str) -> Pin:
    """Read a pin's description.

    :raises ValueError: when it is none of this release.
    """
    fields = untrusted_json.load(content, "a pin")
    if not isinstance(fields, Mapping) or fields.get("version") != PIN_VERSION:
        raise ValueError("it is of another version")
    guest = guest_of(fields["guest"])
    return Pin(
        guest, folder, parse_time(fields["pinned_at"], "pinned_at"), fields["is_final"] is True
    )


def _identity(path: str) -> tuple[int, int] | None:
    """Return which file is at a path, None where there is no regular one."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _links(path: str) -> int:
    try:
        return os.lstat(path).st_nlink
    except OSError:
        return 1
