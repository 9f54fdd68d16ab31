"""Persisted state of the image links of a host: ``<state_path>/agent/image-links.json``.

``acstor links list`` shows it. It also holds the ids of images that are not registered any more:
the name of a base file is a hash, so without the id nobody could say which image an overlay uses.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from acstor import exception, untrusted_json
from acstor.drivers.nova.image_links.link_states import LinkState
from acstor.files import write_atomically
from acstor.repository.layout import canonical_image_id

FILE_NAME = "image-links.json"
FILE_VERSION = 1
FILE_BYTES_MAX = 64 << 20
FORMER_MAX = 10_000
"""Ids of images that have no link any more and are remembered; the oldest is forgotten first."""
_FILE_NAMES = {LinkState.NOVA_DOWNLOADED: "nova's"}
"""States that the file has another name for."""


@dataclass(frozen=True)
class KnownLink:
    """One image's link as it was last seen."""

    state: LinkState
    reason: str = ""


@dataclass(frozen=True)
class KnownLinks:
    """State of all links of a host at the last reconcile pass."""

    base_directory: str = ""
    """Directory of the links."""
    links: Mapping[str, KnownLink] = field(default_factory=dict)
    """By image id."""
    former: tuple[str, ...] = ()
    """Ids of images that had links, the oldest first."""

    @property
    def image_ids(self) -> frozenset[str]:
        """Every image that is known."""
        return frozenset(self.links) | frozenset(self.former)

    def followed_by(self, base_directory: str, links: Mapping[str, KnownLink]) -> "KnownLinks":
        """Return what is known after the next look."""
        gone = sorted(self.links.keys() - links.keys())
        former = [image_id for image_id in self.former if image_id not in links]
        former = [image_id for image_id in former if image_id not in gone] + gone
        return KnownLinks(base_directory, dict(links), tuple(former[-FORMER_MAX:]))

    def encode(self) -> bytes:
        """Return the file's content, JSON."""
        fields = {
            "version": FILE_VERSION,
            "base_directory": self.base_directory,
            "links": {
                image_id: {
                    "state": _name_of(link.state),
                    "reason": link.reason,
                }
                for image_id, link in sorted(self.links.items())
            },
            "former": list(self.former),
        }
        return json.dumps(fields, indent=1).encode() + b"\n"

    @classmethod
    def parse(cls, content: bytes) -> "KnownLinks":
        """Read a file's content; unknown fields are ignored.

        :raises CorruptError: when it is malformed.
        :raises UnsupportedError: when a newer release wrote it.
        """
        try:
            fields = untrusted_json.load(content, FILE_NAME)
            if fields["version"] != FILE_VERSION:
                raise exception.UnsupportedError(
                    f"what is known of the links has version {fields['version']!r:.20}"
                )
            links = {
                canonical_image_id(image_id): KnownLink(_state_of(link["state"]), link["reason"])
                for image_id, link in fields["links"].items()
            }
            former = tuple(canonical_image_id(image_id) for image_id in fields["former"])
            return cls(str(fields["base_directory"]), links, former)
        except (ValueError, TypeError, KeyError, AttributeError, exception.InvalidError) as error:
            raise exception.CorruptError(
                "what is known of the links is malformed",
                hint=f"remove {FILE_NAME} of the agent's directory; it is made anew",
            ) from error


def _name_of(state: LinkState) -> str:
    return _FILE_NAMES.get(state, state.value)


def _state_of(name: str) -> LinkState:
    for state, in_file in _FILE_NAMES.items():
        if in_file == name:
            return state
    return LinkState(name)


def path_in(state_path: str) -> str:
    """Return the path of the file on a host.

    :param state_path: ``[DEFAULT] state_path``.
    """
    return os.path.join(state_path, "agent", FILE_NAME)


def load(path: str) -> KnownLinks | None:
    """Return what is known; None: there never were links on this host.

    :raises CorruptError: and the like when the file is not readable.
    :raises OSError: when it cannot be read.
    """
    try:
        with open(path, "rb") as source:
            content = source.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    if len(content) > FILE_BYTES_MAX:
        raise exception.CorruptError(f"{path} is larger than {FILE_BYTES_MAX} bytes")
    return KnownLinks.parse(content)


def save(path: str, known: KnownLinks) -> None:
    """Replace the file.

    :raises OSError: when it cannot be written.
    """
    write_atomically(path, known.encode())
