"""The user guide's page of commands: each output is what the command says."""

import dataclasses
import pathlib
from collections.abc import Iterator

import pytest

from testbed.fixtures.documents import SOURCE, blocks
from tests.unit.clients.conftest import OpenStackClient, entry_points

PAGE = SOURCE / "user" / "versions.rst"
PROMPT = "$ openstack acstor "


@dataclasses.dataclass(frozen=True)
class Step:
    """A command of the page, and what it is said to print."""

    line: str
    output: str


def steps() -> Iterator[Step]:
    """Yield the commands of the page whose outputs are on it."""
    for block in blocks(PAGE):
        if not block.text.startswith(PROMPT):
            continue
        for part in block.text.split(PROMPT)[1:]:
            line, _, output = part.partition("\n")
            yield Step(f"acstor {line}", output.rstrip("\n"))


@pytest.mark.parametrize("step", list(steps()), ids=lambda step: step.line)
def test_a_command_prints_what_the_page_has(
    client: OpenStackClient,
    step: Step,
    folder: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    result = client.run(step.line)
    printed = [line.rstrip() for line in (result.errors + result.output).splitlines()]
    assert "\n".join(printed).strip("\n") == step.output


def test_the_page_has_a_command_of_every_noun() -> None:
    nouns = {name.split("_")[1] for name in entry_points("openstack.acstor.v1")}
    shown = {step.line.split()[1] for step in steps()}
    assert nouns - shown == set()
