"""The operations on a data plane: one row for each, from which everything else follows.

A row says who may ask (the sockets and the message bus), what may be passed, how long an answer
may take, and which method does it. The servers of both sockets (:mod:`acstor.dataplane.dispatch`),
the agent's endpoint on the bus (:mod:`acstor.agent.volume_endpoint`) and the client's timeouts come
from here; tests compare the methods' signatures, the extension's stub and the page of the protocol
(``doc/source/reference/protocols/admin.rst``).
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from acstor.control import bitmap, parameters, protocol
from acstor.control.parameters import Parameter


class Door(enum.StrEnum):
    """Interface at which an operation can be asked for."""

    ADMIN = "admin"
    """The admin socket: root, on this host. Every operation has it."""
    CONTROL = "control"
    """The socket of volumes: Nova and Cinder, on this host."""
    BUS = "bus"
    """The agent's messages: services that know the secret of ``[rpc] secrets``."""


class Target(enum.StrEnum):
    """Object whose method does an operation."""

    HOST = "host"
    """:class:`acstor.dataplane.host.DataPlaneHost`: the process."""
    RUNTIME = "runtime"
    """:class:`acstor.native.DataPlane`: nothing but the extension module has to do with it."""
    IMAGES = "images"
    """:class:`acstor.dataplane.images.Images`."""
    CHUNKS = "chunks"
    """:class:`acstor.dataplane.chunks.Chunks`."""
    PLACEMENT = "placement"
    """:class:`acstor.dataplane.placement.Placement`."""
    VOLUME_STATUSES = "volume statuses"
    """:class:`acstor.dataplane.volumes.statuses.VolumeStatuses`."""
    VOLUME_OPENING = "volume opening"
    """:class:`acstor.dataplane.volumes.lifecycle.opening.VolumeOpening`."""
    VOLUME_CLOSING = "volume closing"
    """:class:`acstor.dataplane.volumes.lifecycle.closing.VolumeClosing`."""
    VOLUME_PUSHES = "volume pushes"
    """:class:`acstor.dataplane.volumes.pushes.VolumePushes`."""
    VOLUME_FREEZES = "volume freezes"
    """:class:`acstor.dataplane.volumes.freezes.VolumeFreezes`."""
    VOLUME_SETTINGS = "volume settings"
    """:class:`acstor.dataplane.volumes.settings.VolumeSettings`."""
    VOLUME_FOLDS = "volume folds"
    """:class:`acstor.dataplane.volumes.folds.folds.VolumeFolds`."""
    VOLUME_GIVING_UP = "volume giving up"
    """:class:`acstor.dataplane.volumes.lifecycle.giving_up.VolumeGivingUp`."""
    VOLUMES_ASIDE = "volumes aside"
    """:class:`acstor.dataplane.volumes.logs.volumes_aside.VolumesAside`."""


def as_it_is(result: object) -> object:
    """Return the result of a method that returns what is answered."""
    return result


def as_done(result: None) -> object:
    """Return the answer where a method returns nothing."""
    return {"done": True}


def as_state(result: object) -> object:
    """Return the answer where a method returns a state."""
    return {"state": result}


def as_sketch(sketch: Mapping[str, Any]) -> object:
    """Return the count of chunks, and the smallest digests as 16 hex digits."""
    hashes = [f"{prefix:016x}" for prefix in sketch["smallest"]]
    return {"count": sketch["count"], "hashes": hashes}


def as_working_set(found: Mapping[str, Any]) -> object:
    """Return a set of chunks of an image; the bitmap as text."""
    return {**found, "bitmap": bitmap.encode(found["bitmap"])}


def as_recorded_boots(found: Sequence[Mapping[str, Any]]) -> object:
    """Return in which order guests read images while these booted; each order as text."""
    return [{**boot, "order": bitmap.encode(boot["order"])} for boot in found]


@dataclass(frozen=True)
class Operation:
    """One operation."""

    name: str
    target: Target
    method: str
    """Of the target; called with the parameters in their order."""
    parameters: tuple[Parameter, ...] = ()
    timeout: float = 10.0
    """Seconds that a caller waits for the answer unless it says otherwise."""
    answer: Callable[[Any], object] = as_it_is
    doors: frozenset[Door] = frozenset({Door.ADMIN})
    subject: str = ""
    """Beginning of the text of an error, with parameters in braces; of what the runtime does."""
    is_logged: bool = False
    """True if it is logged that it was done."""
    bus_version: str = ""
    """Of the agent's messages, since which it is one; empty: it is none."""

    @property
    def message(self) -> str:
        """The name on the message bus."""
        return self.name.replace(".", "_")

    def checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments in the order of the parameters.

        :raises ParameterError: when one is unknown, missing or out of bounds.
        """
        return parameters.checked(self.name, self.parameters, given)


_IMAGE = Parameter("image", parameters.is_id, "an image id (a UUID in lower case)")
_PATH = Parameter("path", parameters.is_path, "an absolute path")
_PARTIAL = Parameter("partial", parameters.is_flag_or_null, "left out, true or false")
_WHAT = Parameter(
    "what",
    parameters.is_one_of(tuple(protocol.PreloadWhat)),
    " or ".join(protocol.PreloadWhat),
)
_FORCE = Parameter("force", parameters.is_flag, "true or false")
_PIN_BYTES = parameters.is_int(0, protocol.PIN_BYTES_MAX)
_PIN = (
    _IMAGE,
    Parameter("head_bytes", _PIN_BYTES, "0 to 2^40"),
    Parameter("tail_bytes", _PIN_BYTES, "0 to 2^40"),
    Parameter(
        "timeout",
        parameters.is_seconds(protocol.PIN_TIMEOUT_MAX),
        f"seconds, above 0, at most {protocol.PIN_TIMEOUT_MAX:g}",
    ),
)
_DRAIN = Parameter("on", parameters.is_flag, "true or false")
_HOPS = Parameter(
    "hops",
    parameters.is_int_or_null(0, protocol.DISTANCE_THRESHOLD_MAX),
    f"0 to {protocol.DISTANCE_THRESHOLD_MAX} hops, or null: as configured",
)
_LINK_RATE = parameters.is_int_or_null(0, protocol.LINK_RATE_MAX)
_FREE_RATES = (
    Parameter("in_bytes_per_s", _LINK_RATE, "0 to 2^40 bytes per second, or null: not known"),
    Parameter("out_bytes_per_s", _LINK_RATE, "0 to 2^40 bytes per second, or null: not known"),
    Parameter(
        "valid_s",
        parameters.is_seconds(protocol.LINK_RATE_VALID_MAX),
        f"seconds, above 0, at most {protocol.LINK_RATE_VALID_MAX:g}",
    ),
)
_COUNT = Parameter(
    "count", parameters.is_int(1, protocol.SKETCH_MAX), f"1 to {protocol.SKETCH_MAX}"
)
_CAPACITY = Parameter(
    "capacity",
    parameters.is_int(1, protocol.TRACE_ENTRIES_MAX),
    f"1 to {protocol.TRACE_ENTRIES_MAX}",
)
_ACKNOWLEDGED = Parameter(
    "acknowledged",
    parameters.is_int(0, protocol.BOOT_NUMBER_MAX),
    "0 to 2^53 - 1, a number of bootprofile.recorded",
)
_PRELOAD_RATE = Parameter(
    "rate_bytes_per_s",
    parameters.is_int(0, protocol.PRELOAD_RATE_MAX),
    "0 to 2^40 bytes per second; 0: no limit",
)
_PRELOAD_PIN = Parameter("pin", parameters.is_flag, "true or false")
_DIRECTIVES = Parameter(
    "directives",
    parameters.is_matching(r"[A-Za-z0-9_:=,-]{1,255}"),
    "directives such as info,acstor_peer=debug",
)
_VOLUME = Parameter("volume", parameters.is_id, "a volume id (a UUID in lower case)")
_ROLE = Parameter(
    "role",
    parameters.is_one_of(tuple(protocol.VolumeRole)),
    " or ".join(protocol.VolumeRole),
)
_FREEZE_TIMEOUT = Parameter(
    "timeout_s",
    parameters.is_seconds(protocol.VOLUME_FREEZE_MAX),
    f"seconds, above 0, at most {protocol.VOLUME_FREEZE_MAX:g}",
)
_HOLDER = Parameter(
    "holder",
    parameters.is_printable_or_null(protocol.VOLUME_HOLDER_LENGTH_MAX),
    f"left out, or text of at most {protocol.VOLUME_HOLDER_LENGTH_MAX} characters",
)
_SIZE = Parameter(
    "size_bytes",
    parameters.is_multiple(512, protocol.VOLUME_BYTES_MAX),
    "a multiple of 512, at most 2^50",
)
_DURABILITY = Parameter("durability", parameters.is_object, "an object as in the volume's record")
_RATE = parameters.is_int(0, protocol.VOLUME_RATE_MAX)
_LIMITS = (
    Parameter("iops", _RATE, "0 to 2^40 requests per second; 0: no limit"),
    Parameter("bytes_per_s", _RATE, "0 to 2^40 bytes per second; 0: no limit"),
)
_ASIDE = Parameter(
    "name",
    parameters.is_matching(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.[1-9][0-9]{0,8}"),
    "a name of volume.list_aside",
)

_TRACE = "trace of {image}"
_PRELOAD = "preload of {image}"

_ADMIN_AND_CONTROL = frozenset({Door.ADMIN, Door.CONTROL})
_ADMIN_AND_BUS = frozenset({Door.ADMIN, Door.BUS})
_ALL_DOORS = frozenset(Door)
_MOVES_DATA = protocol.VOLUME_OPEN_TIMEOUT
_CHANGES_A_RECORD = 30.0


def _host(name: str, method: str, *wanted: Parameter, **more: Any) -> Operation:
    return Operation(name, Target.HOST, method, wanted, **more)


def _runtime(name: str, method: str, subject: str, *wanted: Parameter, **more: Any) -> Operation:
    return Operation(name, Target.RUNTIME, method, wanted, subject=subject, **more)


def _images(name: str, method: str, *wanted: Parameter, **more: Any) -> Operation:
    return Operation(name, Target.IMAGES, method, wanted, **more)


def _placement(name: str, method: str, *wanted: Parameter, **more: Any) -> Operation:
    return Operation(name, Target.PLACEMENT, method, wanted, **more)


def _chunks(name: str, method: str, *wanted: Parameter, **more: Any) -> Operation:
    return Operation(name, Target.CHUNKS, method, wanted, **more)


def _volume(name: str, target: Target, method: str, *wanted: Parameter, **more: Any) -> Operation:
    return Operation(name, target, method, wanted, **more)


OPERATIONS: tuple[Operation, ...] = (
    _host("status", "status"),
    _images("image.attach", "attach", _PATH, _PARTIAL, timeout=60.0),
    _images("image.detach", "detach", _IMAGE, answer=as_state),
    _runtime("image.list", "list_images", "images"),
    _runtime("pin", "pin_image", "pinning {image}", *_PIN, timeout=protocol.PIN_TIMEOUT_MAX),
    _host("drain", "set_drain", _DRAIN, answer=as_done),
    _placement("ring.set", "set_ring", _PATH),
    _runtime("ring.show", "ring_info", "ring"),
    _placement("placement.threshold", "set_distance_threshold", _HOPS),
    _runtime(
        "link.free",
        "set_free_rates",
        "free rates of the link",
        *_FREE_RATES,
        answer=as_done,
        timeout=2.0,
    ),
    _runtime("store.sketch", "store_sketch", "sketch of the store", _COUNT, answer=as_sketch),
    _host("metrics", "metrics_text"),
    _runtime("ledger.start", "trace_start", _TRACE, _IMAGE, _CAPACITY, answer=as_done),
    _runtime("ledger.get", "trace_get", _TRACE, _IMAGE, timeout=60.0),
    _runtime("ledger.stop", "trace_stop", _TRACE, _IMAGE, answer=as_done),
    _runtime(
        "workingset.read", "working_set", "working set of {image}", _IMAGE, answer=as_working_set
    ),
    _images("workingset.set", "set_working_set", _IMAGE, _PATH, answer=as_done),
    _runtime("workingset.coverage", "coverage", "coverage"),
    _runtime(
        "image.held",
        "held_chunks",
        "chunks of {image}",
        _IMAGE,
        answer=as_working_set,
        timeout=60.0,
    ),
    _chunks("chunks.count", "count", _PATH, timeout=60.0),
    _chunks("chunks.discard", "discard", _PATH, timeout=120.0),
    _runtime(
        "bootprofile.recorded",
        "recorded_boots",
        "boots",
        _ACKNOWLEDGED,
        answer=as_recorded_boots,
        timeout=30.0,
    ),
    _images("bootprofile.set", "set_boot_profile", _IMAGE, _PATH, answer=as_done),
    _runtime(
        "preload.start",
        "preload_start",
        _PRELOAD,
        _IMAGE,
        _WHAT,
        _PRELOAD_RATE,
        _PRELOAD_PIN,
        is_logged=True,
    ),
    _runtime("preload.status", "preload_status", "preloads"),
    _runtime("preload.stop", "preload_stop", _PRELOAD, _IMAGE, answer=as_done),
    _runtime("preload.estimate", "preload_estimate", _PRELOAD, _IMAGE, _WHAT),
    _runtime("log.level", "set_log_level", "log level {directives}", _DIRECTIVES, answer=as_done),
    _host("process.restart", "restart", answer=as_done),
    _host("process.stop", "stop_for_good", _FORCE, answer=as_done),
    _host("volume.host", "name", doors=frozenset({Door.CONTROL})),
    _volume(
        "volume.open",
        Target.VOLUME_OPENING,
        "open",
        _VOLUME,
        _ROLE,
        doors=_ADMIN_AND_CONTROL,
        timeout=_MOVES_DATA,
    ),
    _volume(
        "volume.close",
        Target.VOLUME_CLOSING,
        "close",
        _VOLUME,
        _FORCE,
        answer=as_done,
        doors=_ADMIN_AND_CONTROL,
        timeout=_MOVES_DATA,
    ),
    _volume("volume.list", Target.VOLUME_STATUSES, "list_volumes"),
    _volume(
        "volume.status",
        Target.VOLUME_STATUSES,
        "status",
        _VOLUME,
        doors=_ALL_DOORS,
        bus_version="1.2",
    ),
    _volume(
        "volume.push",
        Target.VOLUME_PUSHES,
        "push",
        _VOLUME,
        doors=_ADMIN_AND_BUS,
        bus_version="1.2",
        timeout=_MOVES_DATA,
    ),
    _volume(
        "volume.freeze",
        Target.VOLUME_FREEZES,
        "freeze",
        _VOLUME,
        _FREEZE_TIMEOUT,
        _HOLDER,
        answer=as_done,
        doors=_ADMIN_AND_BUS,
        bus_version="1.4",
        timeout=protocol.VOLUME_FREEZE_MAX,
    ),
    _volume(
        "volume.thaw",
        Target.VOLUME_FREEZES,
        "thaw",
        _VOLUME,
        _HOLDER,
        doors=_ADMIN_AND_BUS,
        bus_version="1.4",
        timeout=_CHANGES_A_RECORD,
    ),
    _volume(
        "volume.resize",
        Target.VOLUME_SETTINGS,
        "resize",
        _VOLUME,
        _SIZE,
        answer=as_done,
        doors=_ADMIN_AND_BUS,
        bus_version="1.2",
        timeout=_CHANGES_A_RECORD,
    ),
    _volume(
        "volume.set_durability",
        Target.VOLUME_SETTINGS,
        "set_durability",
        _VOLUME,
        _DURABILITY,
        answer=as_done,
        doors=_ADMIN_AND_BUS,
        bus_version="1.2",
        timeout=_CHANGES_A_RECORD,
    ),
    _volume(
        "volume.set_limits",
        Target.VOLUME_SETTINGS,
        "set_limits",
        _VOLUME,
        *_LIMITS,
        answer=as_done,
        doors=_ADMIN_AND_BUS,
        bus_version="1.2",
        timeout=_CHANGES_A_RECORD,
    ),
    _volume("volume.fold", Target.VOLUME_FOLDS, "fold", _VOLUME, timeout=3600.0),
    _volume("volume.give_up", Target.VOLUME_GIVING_UP, "give_up", _VOLUME, timeout=_MOVES_DATA),
    _volume("volume.list_aside", Target.VOLUMES_ASIDE, "list_aside"),
    _volume("volume.remove_aside", Target.VOLUMES_ASIDE, "remove_aside", _ASIDE),
    _volume(
        "volume.restore_aside",
        Target.VOLUMES_ASIDE,
        "restore_aside",
        _ASIDE,
        answer=as_done,
        timeout=_MOVES_DATA,
    ),
    _volume(
        "volume.export_aside", Target.VOLUMES_ASIDE, "export_aside", _ASIDE, _PATH, timeout=86400.0
    ),
)
"""All operations, in the order of the protocol's page."""

BY_NAME: Mapping[str, Operation] = {operation.name: operation for operation in OPERATIONS}
BY_MESSAGE: Mapping[str, Operation] = {
    operation.message: operation for operation in OPERATIONS if Door.BUS in operation.doors
}


def timeout_of(name: str) -> float:
    """Return how long a caller waits for an operation, seconds; of an unknown one, too."""
    operation = BY_NAME.get(name)
    return Operation.timeout if operation is None else operation.timeout
