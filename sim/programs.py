"""Disk work of virtual machines: programs of reads and pauses.

A program is a sequence of operations. An operation waits (the guest thinks, or the host's own disk
works), then reads some chunks at once and ends when it has them all. Programs come from boot traces
of real guests (:mod:`testbed.boot_trace`) or are made like a benchmark's mix
(:mod:`sim.mixes`).

Several images of one trace stand for several templates: image k has the chunks of the trace, of
which a share is common to all images (the same content, the same digest); the others are its own.

A profile is what read-ahead knows of an image before a guest boots it: the chunks in the order in
which boots first touched them. It is right where it comes from such a boot; a share of it may be
wrong, as with another kernel or a package that was changed, or all of it, as with another image.
"""

import hashlib
import pathlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acstor.oid import oid
from sim.exception import ScenarioError
from testbed import boot_trace
from testbed.boot_trace import BootTrace

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]

FIRST_READ = 2
"""Reads of a recorded boot before this one are the firmware's, with ten seconds of thought after
them; the testbed leaves them out as well."""
NONE, RIGHT, OTHER = PROFILE_KINDS = ("none", "right", "other")
TRACES = pathlib.Path(__file__).resolve().parent.parent / "bench" / "traces"


@dataclass(frozen=True)
class Programs:
    """All programs of a run, as arrays."""

    chunk_size: int
    first_op: Ints
    """By program, and one more: where its operations begin."""
    think: Floats
    """By operation: seconds before its reads."""
    served: Floats
    """By operation: bytes that count for the throughput, reads and writes."""
    first_access: Ints
    """By operation, and one more: where its reads begin."""
    content: Ints
    """By access: number of the chunk's content, from 0."""
    length: Ints
    """By access: bytes of the chunk that are read."""
    placement: Ints
    """By content: number of its place on the ring."""
    oids: NDArray[np.uint64]
    """By place: the OID that is looked up."""
    is_loop: bool
    """True if a program begins again when it has ended."""
    first_entry: Ints
    """By program, and one more: where its image's profile begins. Of length 1: none has one."""
    profile: Ints
    """Contents that boots of the images were seen to read, in order of first touch."""

    @property
    def content_count(self) -> int:
        """Return the number of different chunks."""
        return len(self.placement)

    @property
    def think_sums(self) -> Floats:
        """Return by program the seconds that it waits for nothing, which no storage can shorten."""
        sums = np.concatenate(([0.0], np.cumsum(self.think)))[self.first_op]
        return np.asarray(np.diff(sums))


@dataclass(frozen=True)
class ImageLayout:
    """Numbers and places of the chunks of several images."""

    images: int
    common_share: float
    """Of the chunks of an image, those that all images have."""
    chunk_size: int
    placement: str
    """``oid`` or ``digest``, as ``[readpath] placement``."""
    span: int
    """Chunks in a row that are placed together."""


class Catalogue:
    """Numbers the contents of images' chunks and their places on the ring."""

    def __init__(self, layout: ImageLayout, seed: int) -> None:
        self._layout = layout
        self._seed = seed
        self._contents: dict[tuple[int, int], int] = {}
        self._places: dict[int, int] = {}
        self.placement: list[int] = []
        self.oids: list[int] = []

    def _owner_of(self, image: int, index: int) -> int:
        """Return the image that stands for the content: 0 where it is common to all."""
        if image == 0 or self._layout.common_share <= 0:
            return image
        # Whole spans are common: images that share files share them in runs.
        digest = hashlib.blake2b(
            f"{self._seed}/{index // self._layout.span}".encode(), digest_size=8
        ).digest()
        share = int.from_bytes(digest, "little") / 2**64
        return 0 if share < self._layout.common_share else image

    def content(self, image: int, index: int) -> int:
        """Return the number of the content of chunk ``index`` of an image."""
        key = (self._owner_of(image, index), index)
        number = self._contents.get(key)
        if number is None:
            number = self._contents[key] = len(self.placement)
            # By OID, equal chunks of two images have two places: as many as asked for it. The
            # simulator follows the first, the paper's public cache knows one as well.
            self.placement.append(self._place(key[0], index - index % self._layout.span))
        return number

    def _place(self, image: int, first: int) -> int:
        if self._layout.placement == "oid":
            disk = uuid.UUID(
                bytes=hashlib.blake2b(f"{self._seed}:{image}".encode(), digest_size=16).digest()
            )
            position = oid(disk, first)
        else:
            text = f"{self._seed}-{image}-{first}".encode()
            position = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
        number = self._places.get(position)
        if number is None:
            number = self._places[position] = len(self.oids)
            self.oids.append(position)
        return number


class ProgramWriter:
    """Collects operations."""

    def __init__(self, catalogue: Catalogue, chunk_size: int) -> None:
        self._catalogue = catalogue
        self._chunk_size = chunk_size
        self._first_op = [0]
        self._think: list[float] = []
        self._served: list[float] = []
        self._first_access = [0]
        self._content: list[int] = []
        self._length: list[int] = []
        self._first_entry = [0]
        self._profile: list[int] = []

    def read(self, image: int, think: float, offset: int, length: int, served: float) -> None:
        """Add an operation that reads bytes of an image."""
        position, end = offset, offset + length
        while position < end:
            index = position // self._chunk_size
            part = min(end, (index + 1) * self._chunk_size) - position
            self._content.append(self._catalogue.content(image, index))
            self._length.append(part)
            position += part
        self._close(think, served)

    def pause(self, think: float, served: float) -> None:
        """Add an operation that reads nothing over the network."""
        self._close(think, served)

    def _close(self, think: float, served: float) -> None:
        self._think.append(think)
        self._served.append(served)
        self._first_access.append(len(self._content))

    def end_program(self) -> None:
        """Begin the next program."""
        self._first_op.append(len(self._think))

    def add_profile(self, image: int, indexes: Sequence[int]) -> None:
        """Add what is known of a program's image: the chunks that boots were seen to read."""
        self._profile += [self._catalogue.content(image, index) for index in indexes]
        self._first_entry.append(len(self._profile))

    def programs(self, *, is_loop: bool) -> Programs:
        """Return what was collected."""
        return Programs(
            chunk_size=self._chunk_size,
            first_op=np.array(self._first_op, np.int32),
            think=np.array(self._think),
            served=np.array(self._served),
            first_access=np.array(self._first_access, np.int32),
            content=np.array(self._content, np.int32),
            length=np.array(self._length, np.int32),
            placement=np.array(self._catalogue.placement, np.int32),
            oids=np.array(self._catalogue.oids, np.uint64),
            is_loop=is_loop,
            first_entry=np.array(self._first_entry, np.int32),
            profile=np.array(self._profile, np.int32),
        )


def zero_digests(trace: BootTrace) -> dict[int, str]:
    """Return by length what a trace would hold of a read of zeros."""
    lengths = {read.length for read in trace.reads}
    return {length: boot_trace.content_digest(bytes(length)) for length in lengths}


@dataclass(frozen=True)
class ProfileSpec:
    """Profiles that a scenario asks for."""

    kind: str = NONE
    """``none``, ``right``: of a boot of the image itself, ``other``: of another image."""
    right: float = 1.0
    """Share of a right profile's entries that the boot does read."""

    def __post_init__(self) -> None:
        """Refuse what is no profile.

        :raises ScenarioError: names it.
        """
        if self.kind not in PROFILE_KINDS:
            raise ScenarioError(
                f"readahead.profile = {self.kind!r}: one of {', '.join(PROFILE_KINDS)}"
            )
        if not 0 <= self.right <= 1:
            raise ScenarioError(f"readahead.right = {self.right}: from 0 to 1")

    @property
    def right_share(self) -> float:
        """Return the share of the entries that the boot reads."""
        return self.right if self.kind == RIGHT else 0.0


def profile_indexes(
    touched: Sequence[int], disk_chunks: int, spec: ProfileSpec, random: np.random.Generator
) -> list[int]:
    """Return the chunks of a profile, as many as the boot touches, in order.

    An entry that is wrong stands in the place of a chunk that is read, and that the profile lacks.

    :param touched: chunks of the image that the boot reads, in order of first touch.
    :param disk_chunks: of the whole image.
    """
    if spec.kind == NONE:
        return []
    strange = _strange(set(touched), disk_chunks, random)
    is_right = random.random(len(touched)) < spec.right_share
    found = (
        chunk if is_kept else next(strange, None)
        for chunk, is_kept in zip(touched, is_right, strict=True)
    )
    return [chunk for chunk in found if chunk is not None]


def _strange(touched: set[int], disk_chunks: int, random: np.random.Generator) -> Iterator[int]:
    """Yield chunks of an image that the boot does not read, each once, in an order drawn."""
    for chunk in random.permutation(disk_chunks):
        if int(chunk) not in touched:
            yield int(chunk)


NO_PROFILES = ProfileSpec()


def boots(
    traces: Sequence[BootTrace],
    layout: ImageLayout,
    think_scale: float,
    seed: int,
    first_read: int = 0,
    spec: ProfileSpec = NO_PROFILES,
) -> Programs:
    """Return a program per image that does what the traces' guests did.

    Image k follows trace k modulo their number. A read of nothing but zeros is one of zero chunks,
    which costs no approach anything.

    :param first_read: reads before this one are left out; the first that is not comes without a
        thought.
    :param spec: profiles that read-ahead has.
    :raises ScenarioError: when a trace has no read that is left.
    """
    catalogue = Catalogue(layout, seed)
    writer = ProgramWriter(catalogue, layout.chunk_size)
    random = np.random.default_rng(seed + 8)
    for image in range(layout.images):
        trace = traces[image % len(traces)]
        if not 0 <= first_read < len(trace.reads):
            raise ScenarioError(f"machines.first_read = {first_read} of {len(trace.reads)} reads")
        zeros = zero_digests(trace)
        touched: dict[int, None] = {}
        for number, read in enumerate(trace.reads[first_read:]):
            think = read.think_us * 1e-6 * think_scale if number or not first_read else 0.0
            if read.digest == zeros[read.length]:
                writer.pause(think, read.length)
                continue
            writer.read(image, think, read.offset, read.length, read.length)
            end = read.offset + read.length - 1
            chunks = range(read.offset // layout.chunk_size, end // layout.chunk_size + 1)
            touched.update(dict.fromkeys(chunks))
        writer.end_program()
        if spec.kind != NONE:
            disk = trace.disk_size_bytes // layout.chunk_size
            writer.add_profile(image, profile_indexes(list(touched), disk, spec, random))
    return writer.programs(is_loop=False)
