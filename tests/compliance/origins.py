"""The origins that the compliance suites run over."""

import contextlib
import dataclasses
import pathlib
import threading
import uuid
from collections.abc import Callable, Iterator

import pytest

from acstor import exception, native
from acstor.drivers.cinder import native_threads
from acstor.origin import base, faulty, keys, memory, pair, posix, retrying
from acstor.origin.http.driver import HttpOrigin
from acstor.origin.rados import native_reader
from acstor.origin.rados.location import RadosLocation
from acstor.origin.rados.origin import RadosOrigin
from acstor.origin.replicated.driver import ReplicatedOrigin
from acstor.origin.replicated.member import Member
from acstor.origin.replicated.members import MemberAddress
from acstor.origin.replicated.membership import Membership
from acstor.origin.replicated.objects import ReplicatedObjects
from acstor.origin.replicated.placement import Assignments, Placed
from acstor.origin.replicated.refs import HomeRefs
from testbed import origin_server
from testbed.doubles.memory_rados import MemoryRados
from testbed.fixtures.ceph import CephNode
from tests.ceph import ERASURE_POOL, POOL, REF_POOL

RADOS_SECONDS = 120.0
"""Deadline of a call to Ceph, which only a failing test reaches, however busy the machine is."""

MEMBER_SECONDS = 120.0
"""Deadline of a call to a member, as above."""

Factory = Callable[[pathlib.Path], base.Origin]
"""Makes an origin, in an empty directory if it needs one."""


class ServedOrigin(HttpOrigin):
    """The HTTP driver with a server of its own over another origin."""

    def __init__(self, inner: base.Origin) -> None:
        self._server = origin_server.OriginServer(("127.0.0.1", 0), inner)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        super().__init__(f"http://127.0.0.1:{self._server.server_address[1]}/")

    def close(self) -> None:
        super().close()
        self._server.shutdown()
        self._server.server_close()


class NativelyReadOrigin(RadosOrigin):
    """Ceph as a data plane reads it: ranges natively, all else through Python."""

    def __init__(self, location: RadosLocation) -> None:
        super().__init__(
            location.pool,
            stripe_pool=location.stripe_pool,
            ref_pool=location.ref_pool,
            conf=location.conf,
            client=location.client,
            namespace=location.namespace,
            timeout_seconds=location.timeout_seconds,
        )
        self._native = native_reader.open_reader(location)

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        keys.validate_key(key)
        if offset < 0:
            raise exception.InvalidError(f"offset {offset} is negative")
        with native.map_errors(f"reading {key}"):
            return self._native.readinto(key, offset, buffer)

    def close(self) -> None:
        self._native.close()
        super().close()


class ReadOnlyOrigin(memory.MemoryOrigin):
    """Refuses changes, as a web server does that only serves files."""

    def __init__(self, content: memory.MemoryOrigin) -> None:
        super().__init__()
        self._objects = content._objects
        self._refs = content._refs

    def put_if_absent(self, key: str, buffers: object) -> bool:
        raise exception.UnsupportedError("read only")

    def delete(self, key: str) -> bool:
        raise exception.UnsupportedError("read only")

    def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        raise exception.UnsupportedError("read only")


def posix_in_former_layout(path: pathlib.Path) -> base.Origin:
    """Return an origin that releases before repository version 3 may still be using."""
    (path / "refs").mkdir()
    origin = posix.PosixOrigin(str(path))
    assert origin.needs_locks
    return origin


def members_of(home: base.Origin, other: base.Origin) -> base.Origin:
    """Return an origin as services open it whose configuration names members."""
    stores = {"home": home, "other": other}
    Membership("home", stores).create()
    addresses = [MemberAddress(name, name) for name in stores]
    return ReplicatedOrigin(addresses, stores.__getitem__, seconds_max=MEMBER_SECONDS)


def replicated(*stores: base.Origin, copies: int = 1) -> base.Origin:
    """Return an origin whose members these are; the first decides, and is the home of the refs.

    :param copies: members that have an object before a put returns.
    """
    members = {
        name: Member(name, store, MEMBER_SECONDS)
        for name, store in zip("abcd", stores, strict=False)
    }
    placed = Placed(tuple(members), copies=copies)
    return pair.OriginPair(ReplicatedObjects(members, Assignments(placed)), HomeRefs(stores[0]))


def unreliable() -> base.Origin:
    """Return a member whose reads and listings fail now and then, and are short."""
    operations = (faulty.Operation.READ, faulty.Operation.SIZE, faulty.Operation.LIST)
    return faulty.FaultyOrigin(
        memory.MemoryOrigin(),
        [faulty.Fault(one, faulty.Effect.LOST_ANSWER, probability=0.2) for one in operations]
        + [faulty.Fault(faulty.Operation.READ, faulty.Effect.SHORT_READ, probability=0.3)],
    )


ORIGINS: dict[str, Factory] = {
    "memory": lambda path: memory.MemoryOrigin(),
    "posix": lambda path: posix.PosixOrigin(str(path)),
    "posix, former layout": posix_in_former_layout,
    "http over memory": lambda path: ServedOrigin(memory.MemoryOrigin()),
    "http over posix": lambda path: ServedOrigin(posix.PosixOrigin(str(path))),
    "rados over memory": lambda path: RadosOrigin("acstor", binding=MemoryRados().binding),
    "rados over memory, refs in their pool": lambda path: RadosOrigin(
        "acstor", ref_pool="acstor-refs", binding=MemoryRados().binding
    ),
    "rados over memory, of a host": lambda path: RadosOrigin(
        "acstor", is_host=True, binding=MemoryRados().binding
    ),
    "faulty": lambda path: faulty.FaultyOrigin(memory.MemoryOrigin()),
    "in native threads": lambda path: native_threads.NativeThreadOrigin(
        posix.PosixOrigin(str(path)), native_threads.DirectCaller()
    ),
    "retrying": lambda path: retrying.RetryingOrigin(posix.PosixOrigin(str(path)), 5.0),
    "retrying over lost answers": lambda path: retrying.RetryingOrigin(
        faulty.FaultyOrigin(
            memory.MemoryOrigin(),
            [
                faulty.Fault(operation, faulty.Effect.LOST_ANSWER, probability=0.3)
                for operation in (faulty.Operation.SWAP_REF, faulty.Operation.READ)
            ]
            + [faulty.Fault(faulty.Operation.READ, faulty.Effect.SHORT_READ, probability=0.5)],
        ),
        60.0,
        sleep=lambda seconds: None,
    ),
    "replicated, two members": lambda path: replicated(
        memory.MemoryOrigin(), memory.MemoryOrigin()
    ),
    "replicated, two members of two kinds": lambda path: replicated(
        posix.PosixOrigin(str(path)), RadosOrigin("acstor", binding=MemoryRados().binding), copies=2
    ),
    "replicated, three members, one faulty": lambda path: retrying.RetryingOrigin(
        replicated(memory.MemoryOrigin(), unreliable(), memory.MemoryOrigin(), copies=3), 60.0
    ),
    # Its home has refs of its own, which a list of all has, too.
    "members of a configuration": lambda path: pair.OriginPair(
        members_of(posix.PosixOrigin(str(path)), memory.MemoryOrigin()), memory.MemoryOrigin()
    ),
    "replicated, four members": lambda path: replicated(
        *(memory.MemoryOrigin() for _ in range(4)), copies=2
    ),
}


def lost_answers(inner: base.Origin) -> base.Origin:
    """Return an origin of which many answers are lost, behind the one that repeats calls."""
    faults = [
        faulty.Fault(operation, effect, probability=0.15)
        for operation in (
            faulty.Operation.SWAP_REF,
            faulty.Operation.GET_REF,
            faulty.Operation.LIST,
            faulty.Operation.LIST_REFS,
        )
        for effect in (faulty.Effect.ERROR, faulty.Effect.LOST_ANSWER)
    ]
    flaky = faulty.FaultyOrigin(inner, faults, seed=7)
    return retrying.RetryingOrigin(flaky, 60.0, sleep=lambda seconds: None)


VOLUME_ORIGINS: dict[str, Factory] = {
    "memory": lambda path: memory.MemoryOrigin(),
    "posix": lambda path: posix.PosixOrigin(str(path)),
    "faulty": lambda path: lost_answers(memory.MemoryOrigin()),
    "faulty posix": lambda path: lost_answers(posix.PosixOrigin(str(path))),
    "replicated": lambda path: replicated(
        memory.MemoryOrigin(), posix.PosixOrigin(str(path)), copies=2
    ),
    "members of a configuration": lambda path: members_of(
        posix.PosixOrigin(str(path)), memory.MemoryOrigin()
    ),
    "faulty replicated": lambda path: lost_answers(
        replicated(memory.MemoryOrigin(), memory.MemoryOrigin())
    ),
}
"""Origins that the suites of volumes and versions run over."""


@dataclasses.dataclass(frozen=True)
class Shared:
    """One store as two see it: who may write to it, and who reads it."""

    writer: base.Origin
    reader: base.Origin


@contextlib.contextmanager
def opened(factory: Factory, path: pathlib.Path) -> Iterator[base.Origin]:
    """Open an origin within the block."""
    origin = factory(path)
    yield origin
    origin.close()


def factory_of(name: str, request: pytest.FixtureRequest) -> Factory:
    """Return the factory of an origin, having started what it needs."""
    if name in ORIGINS:
        return ORIGINS[name]
    node: CephNode = request.getfixturevalue("ceph")
    pools = RADOS[name]
    if name in READ_NATIVELY:
        return lambda path: NativelyReadOrigin(native_location(node, pools))
    return lambda path: rados_origin(node, pools.stripes, pool=pools.heads, ref_pool=pools.refs)


def native_location(
    node: CephNode,
    pools: "Pools",
    timeout_seconds: float = RADOS_SECONDS,
    *,
    namespace: str | None = None,
) -> RadosLocation:
    """Return where a native reader finds an origin, in namespaces of its own if none is named."""
    return RadosLocation(
        pools.heads,
        stripe_pool=pools.stripes,
        ref_pool=pools.refs,
        conf=str(node.configuration),
        client="admin",
        namespace=namespace or uuid.uuid4().hex,
        timeout_seconds=timeout_seconds,
    )


def rados_origin(
    node: CephNode,
    stripe_pool: str,
    timeout_seconds: float = RADOS_SECONDS,
    *,
    client: str = "admin",
    namespace: str | None = None,
    pool: str = POOL,
    ref_pool: str | None = None,
) -> RadosOrigin:
    """Return an origin, in namespaces of its own if none is named."""
    return RadosOrigin(
        pool,
        stripe_pool=stripe_pool,
        ref_pool=ref_pool,
        conf=str(node.configuration),
        client=client,
        namespace=namespace or uuid.uuid4().hex,
        timeout_seconds=timeout_seconds,
    )


@contextlib.contextmanager
def shared(name: str, path: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[Shared]:
    """Open an origin for a writer and a reader, who may be the same one.

    :param name: of :data:`ALL`, or :data:`READ_ONLY`.
    """
    if name == READ_ONLY:
        content = memory.MemoryOrigin()
        with opened(lambda _: ServedOrigin(ReadOnlyOrigin(content)), path) as reader:
            yield Shared(content, reader)
    else:
        with opened(factory_of(name, request), path) as origin:
            yield Shared(origin, origin)


@dataclasses.dataclass(frozen=True)
class Pools:
    """Pools of an origin in Ceph."""

    heads: str = POOL
    stripes: str = POOL
    refs: str = POOL


RADOS = {
    "rados": Pools(),
    "rados, refs in their pool": Pools(refs=REF_POOL),
    "rados, read natively": Pools(),
    "rados, erasure-coded, read natively": Pools(stripes=ERASURE_POOL),
    "rados, erasure-coded": Pools(stripes=ERASURE_POOL),
    "rados, all but the refs erasure-coded": Pools(ERASURE_POOL, ERASURE_POOL, REF_POOL),
}
"""Names of origins in Ceph."""
READ_NATIVELY = frozenset({"rados, read natively", "rados, erasure-coded, read natively"})
"""Names of those whose objects are read as a data plane reads them."""
READ_ONLY = "http, read only"
ALL = [
    *sorted(ORIGINS),
    "rados",
    "rados, refs in their pool",
    pytest.param("rados, erasure-coded", marks=pytest.mark.extended),
    pytest.param("rados, all but the refs erasure-coded", marks=pytest.mark.extended),
]
OBJECTS = [
    *ALL,
    "rados, read natively",
    pytest.param("rados, erasure-coded, read natively", marks=pytest.mark.extended),
]
SHARED = [*OBJECTS, READ_ONLY]
