"""Persisted state of a host's image links, and the states of one link."""

import json
import pathlib

import pytest

from acstor import exception
from acstor.drivers.nova.image_links import known_links, link_states
from acstor.drivers.nova.image_links.known_links import FORMER_MAX, KnownLink, KnownLinks
from acstor.drivers.nova.image_links.link_states import LinkEvent, LinkState, next_state
from tests.unit.drivers.nova.conftest import IMAGE, OTHER

ROOT = pathlib.Path(__file__).parents[4]
GOLDEN = ROOT / "tests" / "golden" / "image-links-v1.json"
PAGE = ROOT / "doc" / "source" / "reference" / "state-machines" / "image-link.rst"
THIRD = "00000000-0000-0000-0000-000000000003"
KNOWN = KnownLinks(
    "/var/lib/nova/instances/_base",
    {
        IMAGE: KnownLink(LinkState.PLANTED),
        OTHER: KnownLink(LinkState.KEPT, "in use by instances of this host"),
    },
    (THIRD,),
)


def test_image_links_version_requires_update() -> None:
    assert known_links.FILE_VERSION == 1
    assert KNOWN.encode() == GOLDEN.read_bytes()
    assert KnownLinks.parse(GOLDEN.read_bytes()) == KNOWN


def test_what_was_saved_is_loaded(tmp_path: pathlib.Path) -> None:
    path = known_links.path_in(str(tmp_path))
    assert known_links.load(path) is None
    known_links.save(path, KNOWN)
    assert known_links.load(path) == KNOWN


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b'{"version": 1}', b'{"version": 1, "base_directory": "", "links": []}',
        b'{"version": 1, "base_directory": "", "links": {"x": {}}, "former": []}',
        b'{"version": 1, "base_directory": "", "links": {}, "former": [1]}',
    ],
)  # fmt: skip
def test_malformed_file_is_an_error(content: bytes) -> None:
    with pytest.raises(exception.CorruptError):
        KnownLinks.parse(content)


def test_file_of_a_newer_release_is_unsupported() -> None:
    with pytest.raises(exception.UnsupportedError):
        KnownLinks.parse(b'{"version": 2}')


def test_ids_of_images_that_are_gone_are_remembered_and_bounded() -> None:
    following = KNOWN.followed_by("/b", {THIRD: KnownLink(LinkState.PLANTED)})
    assert following.former == (IMAGE, OTHER)
    assert following.image_ids == {IMAGE, OTHER, THIRD}
    many = KnownLinks("/b", {}, tuple(f"image-{number}" for number in range(FORMER_MAX)))
    former = KnownLinks("/b", {IMAGE: KnownLink(LinkState.PLANTED)}, many.former)
    assert len(former.followed_by("/b", {}).former) == FORMER_MAX
    assert former.followed_by("/b", {}).former[-1] == IMAGE


def test_every_event_may_follow_every_state_but_the_last() -> None:
    for state in LinkState:
        for event in LinkEvent:
            if state is LinkState.GONE:
                with pytest.raises(KeyError):
                    next_state(state, event)
            else:
                assert next_state(state, event) in LinkState


def test_page_lists_exactly_the_events_of_the_table() -> None:
    listed = {
        tuple(cell.strip().strip("`") for cell in line.split("|")[1:3])
        for line in PAGE.read_text().splitlines()
        if line.startswith("| ``")
    }
    assert listed == {
        (event.value, following.value) for (_, event), following in link_states.TRANSITIONS.items()
    }
    for state in LinkState:
        assert f"``{state.value}``" in PAGE.read_text()


def test_file_keeps_the_former_name_of_a_state() -> None:
    known = KnownLinks("/base", {IMAGE: KnownLink(LinkState.NOVA_DOWNLOADED)})
    assert json.loads(known.encode())["links"][IMAGE]["state"] == "nova's"
    assert KnownLinks.parse(known.encode()) == known
