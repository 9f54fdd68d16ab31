"""Hand-over: what a server that comes to this host reads is brought before it runs here.

One transfer for each image, however many servers come with it. Each asks the hosts that the servers
come from for their warm sets, has the data plane expect them beside what was learnt, and has the
working set preloaded as any other preload: by the same admission, at the same rate, behind all
guests. Nothing depends on it: whatever fails costs warmth only.
"""

import dataclasses
import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Protocol

from acstor import exception
from acstor.agent.reconciler import HostSnapshot
from acstor.control.chunk_set import ChunkSet
from acstor.control.client import AdminClient
from acstor.control.hand_over import HandOverRequest, MoveKind
from acstor.control.protocol import PreloadWhat
from acstor.origin.base import Origin
from acstor.preload import admission
from acstor.preload.admission import Estimate, Reason
from acstor.preload.request import PreloadRequest
from acstor.preload.states import AdmittedPreloadState
from acstor.preload.warm_set import WarmSet
from acstor.repository.disk_manifest import load_manifest
from acstor.repository.volumes import record_refs

LOG = logging.getLogger(__name__)

TICK_SECONDS = 1.0
"""Time between two looks at transfers while there are any."""
TRANSFERS_MAX = 64
"""Images that are brought at a time; servers with others come cold."""
INSTANCES_MAX = 1024
"""Servers of one transfer that are known by their ids: some of a host that is evacuated."""
_ENDED_WELL = {AdmittedPreloadState.DONE, AdmittedPreloadState.MISSED}

Ask = Callable[[str, str], object]
"""Asks a host for the warm set of an image: returns its answer, or raises what an agent's client
does."""


class Expectations(Protocol):
    """Working sets of the data plane, to which what is handed over is added for a while."""

    def expect(self, data_plane: AdminClient, image_id: str, chunks: ChunkSet) -> None: ...  # noqa: D102
    def expect_no_more(self, image_id: str) -> None: ...  # noqa: D102


class Preloads(Protocol):
    """Admitted preloads of this host."""

    def estimate(self, image: str, what: PreloadWhat) -> Estimate: ...  # noqa: D102
    def admit(self, admission_id: str, request: PreloadRequest) -> dict[str, object]: ...  # noqa: D102
    def status(self, image: str | None = None) -> list[dict[str, object]]: ...  # noqa: D102
    def give_up(self, image: str, admission_id: str | None = None) -> dict[str, object]: ...  # noqa: D102


@dataclasses.dataclass(slots=True)
class _Transfer:
    """Transfer of one image's warm sets to this host."""

    image: str
    kind: MoveKind
    until: float
    """Monotonic time at which it is given up."""
    instances: set[str] = dataclasses.field(default_factory=set)
    """Servers that come; without any it is cancelled."""
    unasked: list[str] = dataclasses.field(default_factory=list)
    """Hosts that are to be asked for their warm sets."""
    asked: set[str] = dataclasses.field(default_factory=set)
    warm: ChunkSet | None = None
    """Chunks that hosts have told; None: none has."""
    is_expected: bool = False
    """True if the data plane was told of ``warm``."""
    admission_id: str | None = None
    """Of the preload; None: none is admitted."""


class HandOver:
    """Reconciler of the transfers; the registrar asks for them through the RPC endpoint.

    :param ask: None: there is no message transport, so that what all hosts have learnt must do.
    :param size_max: bytes of chunks that are taken from the warm sets of one image.
    :param timeout: seconds after which a transfer is given up.
    :param is_wanted: whether anything is done at all.
    :param on_end: called with the kind of the move and the outcome of each transfer.
    :param on_list: called with ``told``, ``silent`` or ``not_asked`` for each host of a transfer.
    :param clock: monotonic seconds.
    """

    name = "hand-over"

    def __init__(
        self,
        data_plane: AdminClient,
        working_sets: Expectations,
        preloads: Preloads,
        ask: Ask | None,
        *,
        size_max: int,
        timeout: float,
        is_wanted: bool = True,
        on_end: Callable[[MoveKind, str], None] = lambda kind, outcome: None,
        on_list: Callable[[str], None] = lambda outcome: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._data_plane = data_plane
        self._working_sets = working_sets
        self._preloads = preloads
        self._ask = ask
        self._size_max = size_max
        self._timeout = timeout
        self._is_wanted = is_wanted
        self._on_end = on_end
        self._on_list = on_list
        self._clock = clock
        self._condition = threading.Condition()  # of everything below
        self._transfers: dict[str, _Transfer] = {}  # by image
        self._requests: list[HandOverRequest] = []  # whose volumes were not looked at yet
        self._sight: HostSnapshot | None = None
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="hand-over", daemon=True)

    # The reconciler

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def reconcile(self, snapshot: HostSnapshot) -> Mapping[str, str]:
        """Note how things are."""
        with self._condition:
            self._sight = snapshot
        return {}

    def stop(self, timeout: float) -> None:
        """End the thread within ``timeout`` seconds; preloads that have begun go on."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout)

    # Requests of the registrar

    def begin(self, request: HandOverRequest) -> bool:
        """Begin to bring what a server reads; return whether anything is done. Waits for nothing.

        Asked again for the same server, nothing new happens.
        """
        if not self._is_wanted:
            return False
        with self._condition:
            for image in request.images:
                self._add(image, request)
            if request.volumes:
                # The newest count: servers of the oldest are likely here by now.
                self._requests = [*self._requests[-(TRANSFERS_MAX - 1) :], request]
            self._condition.notify_all()
        LOG.info(
            "server %s comes from host %s by %s", request.instance, request.source, request.kind
        )
        return True

    def cancel(self, instance: str) -> bool:
        """Give up what is brought for a server that does not come; return whether anything was."""
        with self._condition:
            before = len(self._requests)
            self._requests = [each for each in self._requests if each.instance != instance]
            is_known = len(self._requests) < before
            for transfer in self._transfers.values():
                is_known |= instance in transfer.instances
                transfer.instances.discard(instance)
            self._condition.notify_all()
        return is_known

    def _add(self, image: str, request: HandOverRequest) -> None:
        transfer = self._transfers.get(image)
        if transfer is None:
            if len(self._transfers) >= TRANSFERS_MAX:
                self._on_end(request.kind, "refused")
                return
            transfer = self._transfers[image] = _Transfer(image, request.kind, 0.0)
        transfer.until = self._clock() + self._timeout
        if len(transfer.instances) < INSTANCES_MAX:
            transfer.instances.add(request.instance)
        if request.source in transfer.asked or request.source in transfer.unasked:
            return
        if request.kind is MoveKind.EVACUATION or self._ask is None:
            # Nobody answers there; what it reported while it lived is in what was learnt.
            transfer.asked.add(request.source)
            self._on_list("not_asked")
        else:
            transfer.unasked.append(request.source)

    # The thread

    def _run(self) -> None:
        while self._wait():
            try:
                self.tick()
            except Exception:
                # A fault of one look is not to leave all servers cold.
                LOG.exception("looking at hand-overs failed")

    def _wait(self) -> bool:
        with self._condition:
            is_busy = bool(self._transfers or self._requests)
            self._condition.wait(TICK_SECONDS if is_busy else None)
            return not self._is_stopping

    def tick(self) -> None:
        """Bring each transfer on."""
        self._find_images_of_volumes()
        with self._condition:
            transfers = list(self._transfers.values())
        for transfer in transfers:
            outcome = self._advance(transfer)
            if outcome is not None:
                self._end(transfer, outcome)

    def _find_images_of_volumes(self) -> None:
        with self._condition:
            requests, self._requests = self._requests, []
            origin = self._sight.origin if self._sight is not None else None
        if origin is None:
            return  # then they come cold: whoever boots cannot read much, either
        for request in requests:
            images = [_image_below(origin, volume) for volume in request.volumes]
            with self._condition:
                for image in dict.fromkeys(images):
                    if image is not None:
                        self._add(image, request)

    def _advance(self, transfer: _Transfer) -> str | None:
        """Do the next step; return the outcome when the transfer is over."""
        with self._condition:
            if not transfer.instances:
                return "cancelled"
            if self._clock() >= transfer.until:
                return "late"
            sources, transfer.unasked = transfer.unasked, []
            transfer.asked.update(sources)
        for source in sources:
            self._take(transfer, source)
        try:
            if not self._expect(transfer):
                return None
            if transfer.admission_id is None:
                return self._admit(transfer)
            return self._outcome(transfer, transfer.admission_id)
        except (exception.UnavailableError, exception.NotFoundError, exception.OverloadedError):
            return None  # not attached yet, nothing learnt yet, or away: until the time is over
        except (exception.AcstorError, OSError) as error:
            LOG.warning("hand-over of image %s: %s", transfer.image, exception.one_line(error))
            return "failed"

    def _take(self, transfer: _Transfer, source: str) -> None:
        """Ask a host for its warm set of the image."""
        assert self._ask is not None
        try:
            told = WarmSet.from_answer(source, transfer.image, self._ask(source, transfer.image))
        except exception.AcstorError as error:
            LOG.info(
                "host %s tells no warm set of image %s: %s",
                source, transfer.image, exception.one_line(error),
            )  # fmt: skip
            self._on_list("silent")
            return
        self._on_list("told")
        chunks = told.first(self._chunks_max())
        with self._condition:
            known = transfer.warm
            if known is not None and known.chunk_count == chunks.chunk_count:
                chunks = known | chunks
            transfer.warm, transfer.is_expected = chunks, False

    def _chunks_max(self) -> int:
        status = self._sight.status if self._sight is not None else None
        chunk_size = int(status["chunk_size"]) if status else 64 << 10
        return max(1, self._size_max // chunk_size)

    def _expect(self, transfer: _Transfer) -> bool:
        """Have the data plane expect what was told; return whether it does."""
        with self._condition:
            warm, is_expected = transfer.warm, transfer.is_expected
        if warm is None or is_expected:
            return True
        own = self._data_plane.call("workingset.read", image=transfer.image)
        if warm.chunk_count == own["chunk_count"]:
            self._working_sets.expect(self._data_plane, transfer.image, warm)
        else:
            LOG.warning("warm set of image %s is of another length: ignored", transfer.image)
            warm = None
        with self._condition:
            transfer.warm, transfer.is_expected = warm, warm is not None
        if transfer.admission_id is not None:
            # A job that runs brings what was wanted when it was started.
            self._give_up(transfer)
        return True

    def _admit(self, transfer: _Transfer) -> str | None:
        request = PreloadRequest(transfer.image, PreloadWhat.WORKING_SET)
        estimate = self._preloads.estimate(transfer.image, request.what)
        verdict = admission.judge(request, estimate)
        if verdict.reason in {Reason.ACTIVE, Reason.RATE}:
            return None  # what others asked for goes first
        if verdict.reason is not None:
            LOG.info("image %s is not handed over: %s", transfer.image, verdict.text)
            return "refused"
        if not estimate.missing_bytes:
            return "done"
        admission_id = str(uuid.uuid4())
        self._preloads.admit(admission_id, request)
        transfer.admission_id = admission_id
        return None

    def _outcome(self, transfer: _Transfer, admission_id: str) -> str | None:
        """Return the outcome of the preload, None while it goes on."""
        for found in self._preloads.status(transfer.image):
            if found["id"] == admission_id:
                state = AdmittedPreloadState(str(found["state"]))
                if not state.has_ended:
                    return None
                return "done" if state in _ENDED_WELL else str(state)
        return "stopped"  # somebody asked for another preload in its place

    def _end(self, transfer: _Transfer, outcome: str) -> None:
        with self._condition:
            has_more = bool(transfer.unasked) if outcome == "done" else bool(transfer.instances)
            if has_more and outcome in {"done", "cancelled"}:
                transfer.admission_id = None  # a server came while it was being decided
                return
            del self._transfers[transfer.image]
        if outcome in {"cancelled", "late"}:
            self._give_up(transfer)
        self._working_sets.expect_no_more(transfer.image)
        self._on_end(transfer.kind, outcome)
        LOG.info("hand-over of image %s: %s", transfer.image, outcome)

    def _give_up(self, transfer: _Transfer) -> None:
        admission_id, transfer.admission_id = transfer.admission_id, None
        if admission_id is None:
            return
        try:
            self._preloads.give_up(transfer.image, admission_id)
        except (exception.AcstorError, OSError) as error:
            LOG.info("preload of image %s: %s", transfer.image, exception.one_line(error))


def _image_below(origin: Origin, volume_id: str) -> str | None:
    """Return the image whose manifest is below a volume, None where there is none."""
    try:
        volume = record_refs.find_volume(origin, volume_id)
        if volume is None or volume.record.manifest is None:
            return None
        disk_id = load_manifest(origin, volume.record.manifest).disk_id
    except exception.AcstorError as error:
        LOG.info("volume %s is not looked at: %s", volume_id, exception.one_line(error))
        return None
    # What a fold made is the volume's own, and attached only where the volume is.
    return None if disk_id == volume_id else disk_id
