"""Formats that agent and data plane keep, against their golden files and pages."""

import pathlib

import pytest

from acstor.agent import states as agent_states
from acstor.agent.reconcilers.desired_host import DESIRED_STATE_VERSION, DesiredState
from acstor.cluster.ring.published_ring import GENERATION_VERSION, encode_generation
from acstor.cluster.ring.publisher_term import TERM_VERSION, PublisherTerm
from acstor.dataplane import attachments
from acstor.dataplane import states as process_states
from acstor.dataplane.attachments import Attachments
from acstor.supervision.holder import states as holder_states

ROOT = pathlib.Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden"
PAGES = ROOT / "doc" / "source" / "reference" / "state-machines"


def test_desired_state_version_requires_update() -> None:
    assert DESIRED_STATE_VERSION == 1
    golden = (GOLDEN / "desired-state-v1.json").read_bytes()
    assert DesiredState(is_drained=True).encode() == golden
    assert DesiredState.parse(golden, "h1") == DesiredState(is_drained=True)


def test_ring_generation_version_requires_update() -> None:
    assert GENERATION_VERSION == 1
    assert encode_generation(7) == (GOLDEN / "ring-generation-v1.json").read_bytes()


def test_ring_term_version_requires_update() -> None:
    assert TERM_VERSION == 1
    golden = (GOLDEN / "ring-term-v1.json").read_bytes()
    term = PublisherTerm(7, "compute-1", 1795416899000)
    assert term.encode() == golden
    assert PublisherTerm.parse(golden) == term
    assert PublisherTerm.parse(golden.replace(b"{", b'{"colour": "red", ')) == term


def test_dataplane_state_version_requires_update(tmp_path: pathlib.Path) -> None:
    assert attachments.FORMAT_VERSION == 1
    kept = Attachments(str(tmp_path))
    kept.keep_chunk_size(65536)
    golden = (GOLDEN / "dataplane-state-v1.json").read_bytes()
    assert (tmp_path / "repository.json").read_bytes() == golden
    assert kept.chunk_size() == 65536


@pytest.mark.parametrize(
    ("page", "module"),
    [
        ("agent.rst", agent_states),
        ("dataplane-process.rst", process_states),
        ("holder.rst", holder_states),
    ],
)
def test_page_of_a_state_machine_lists_exactly_its_transitions(page: str, module: object) -> None:
    text = (PAGES / page).read_text()
    listed = {
        tuple(cell.strip().strip("`") for cell in line.split("|")[1:4])
        for line in text.splitlines()
        if line.startswith("| ``")
    }
    table = vars(module)["TRANSITIONS"]
    assert listed == {
        (state.value, event.value, following.value) for (state, event), following in table.items()
    }
