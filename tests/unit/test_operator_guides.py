"""Names in the guides for operators, all of which exist: commands, options, files, messages."""

import argparse
import ast
import configparser
import itertools
import pathlib
import re
import shlex
from collections.abc import Iterator

import pytest
from oslo_config import cfg

from acstor.checks import upgrade
from acstor.cli.app import Application
from acstor.conf import loading, opts, services
from testbed.fixtures.documents import ROOT, SOURCE, Block, blocks

ADMIN = SOURCE / "admin"
TROUBLESHOOTING = ADMIN / "troubleshooting.rst"
GUIDES = [
    *sorted((SOURCE / "install").glob("*.rst")),
    *(
        ADMIN / f"{name}.rst"
        for name in (
            "upgrade",
            "removal",
            "troubleshooting",
            "monitoring",
            "security",
            "signed-images",
            "backup",
        )
    ),
    *sorted((SOURCE / "cli").glob("*.rst")),
]
SAMPLES = sorted((ROOT / "etc" / "acstor").glob("*.conf.co*"))


def guide_blocks(language: str) -> list[Block]:
    return [block for page in GUIDES for block in blocks(page) if block.language == language]


# Commands


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Yield (page, words) of every command that the guides have somebody type."""
    for block in guide_blocks("console"):
        joined = block.text.replace("\\\n", " ")
        for line in joined.splitlines():
            if not line.startswith(("# ", "$ ")) or "<<" in line or "$(" in line:
                continue
            for part in re.split(r"&&|\|", line[2:]):
                words = shlex.split(part)
                if words[:1] == ["sudo"]:
                    words = words[3:]
                yield block.page, words


def commands_of(program: str) -> list[tuple[str, list[str]]]:
    return [(page, words[1:]) for page, words in command_lines() if words[:1] == [program]]


def test_commands_of_the_guides_exist() -> None:
    """With their options; what an argument means is not looked at."""
    manager = Application().command_manager
    seen = 0
    for page, words in commands_of("acstor"):
        if words == ["--version"]:
            continue
        try:
            command, name, rest = manager.find_command(words)
        except ValueError:
            pytest.fail(f"{page}: there is no command 'acstor {' '.join(words)}'")
        parser = command(Application(), argparse.Namespace()).get_parser(name)
        try:
            parser.parse_args(rest)
        except SystemExit:
            pytest.fail(f"{page}: 'acstor {' '.join(words)}' is refused")
        seen += 1
    assert seen > 10


def test_status_commands_of_the_guides_exist() -> None:
    known = {"upgrade", "check", "--json", "--config-file", "/etc/acstor/acstor.conf"}
    commands = commands_of("acstor-status")
    assert commands
    for page, words in commands:
        assert set(words) <= known, (page, words)


def test_units_of_the_guides_exist() -> None:
    units = {path.stem for path in (ROOT / "etc" / "systemd").glob("*.service")}
    others = {"etcd", "nova-compute", "nova-scheduler"}
    named = set()
    for _, words in command_lines():
        if words[:1] == ["systemctl"]:
            named |= {word for word in words[2:] if not word.startswith("-")}
    assert units <= named
    assert named <= units | others


def test_programs_of_the_units_are_linked() -> None:
    """A unit whose program is not where it says fails with status 203."""
    started = set()
    for path in (ROOT / "etc" / "systemd").glob("*.service"):
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.read(path)
        started.add(unit["Service"]["ExecStart"].split()[0])
    # The upgrade guide links one that is new; the installation guide all.
    links = [words[1:] for _, words in command_lines() if words[:2] == ["ln", "-s"]]
    linked = max(links, key=len)
    names = {pathlib.PurePath(word).name for word in linked[:-1]}
    assert started <= {f"{linked[-1]}{name}" for name in names}
    assert {"acstor", "acstor-status"} <= names


def test_ports_of_the_network_table_are_the_defaults() -> None:
    """All that ACStor listens on by default, and nothing else of its own."""
    page = (SOURCE / "install" / "index.rst").read_text()
    rows = re.findall(r"^   \* - (\d+)\n     - [^\n]*``\[(\w+)\] (\w+)``", page, re.M)
    listed = {(group, name): int(port) for port, group, name in rows}
    assert listed == {
        (str(group), option.dest): option.default
        for group, options in opts.list_opts()
        for option in options
        if option.dest.endswith("_port")
    }


def test_installed_files_of_the_guides_are_installed() -> None:
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg")
    lines = [line.partition("=") for line in setup["files"]["data_files"].strip().splitlines()]
    folders = {folder.strip(): source.strip() for folder, _, source in lines}
    named = {
        word.removeprefix("/opt/acstor/")
        for _, words in command_lines()
        for word in words
        if word.startswith(("/opt/acstor/share/", "/opt/acstor/etc/"))
    }
    assert named
    for path in named:
        folder, _, name = path.rpartition("/")
        assert (ROOT / folders[folder].removesuffix("*") / name).is_file(), path


# Options


def known_options(file_name: str) -> set[tuple[str, str]]:
    """Return (group, name) of the options of a configuration file that the guides write."""
    match file_name:
        case "acstor.conf":
            from oslo_messaging import opts as messaging_opts

            listed = [*opts.list_opts(), *services.list_opts(), *messaging_opts.list_opts()]
            extra = set()
        case "nova.conf":
            from acstor.drivers.brick import options as volumes
            from acstor.scheduler.nova import options

            listed = [*options.list_opts(), *volumes.list_opts()]
            scheduler = ("weight_classes", "available_filters", "enabled_filters")
            extra = {("filter_scheduler", name) for name in scheduler}
            extra.add(("oslo_messaging_notifications", "driver"))
            reserved = ("reserved_host_disk_mb", "reserved_host_memory_mb")
            extra |= {("DEFAULT", name) for name in reserved}
        case "cinder.conf":
            from acstor.scheduler.cinder import options as weighing

            listed = weighing.list_opts()
            extra = {("DEFAULT", "scheduler_default_weighers")}
        case "glance-api.conf":
            from oslo_messaging import opts as messaging_opts

            listed, extra = messaging_opts.list_opts(), set()
        case _:
            pytest.fail(f"a configuration file that this test does not know: {file_name}")
    return extra | {
        (str(group or "DEFAULT"), name)
        for group, options_ in listed
        for option in options_
        for name in (option.name, option.dest)
    }


def test_options_of_the_snippets_exist(tmp_path: pathlib.Path) -> None:
    snippets = guide_blocks("ini")
    assert snippets
    for snippet in snippets:
        path = tmp_path / "snippet"
        path.write_text(snippet.text)
        groups: dict[str, dict[str, list[str]]] = {}
        cfg.ConfigParser(str(path), groups).parse()
        known = known_options(pathlib.PurePath(snippet.caption).name)
        for group, values in groups.items():
            for name in values:
                assert (group, name) in known, f"{snippet.page}: [{group}] {name}"


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_options_in_the_text_exist(page: pathlib.Path) -> None:
    known = known_options("acstor.conf") | known_options("nova.conf")
    groups = {group for group, _ in known}
    text = re.sub(r"\s+", " ", page.read_text())
    for group, name in re.findall(r"``\[(\w+)\] (\w+)", text):
        if group in groups - {"DEFAULT"}:
            assert (group, name) in known, f"[{group}] {name}"


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_example_configuration_is_valid(
    path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With what is commented out turned on, too."""
    loading.warn_of_unknown(loading.load("acstor", ["--config-file", str(path)]))
    assert caplog.records == []
    known = known_options("acstor.conf")
    group = ""
    for line in path.read_text().splitlines():
        if heading := re.match(r"\[(\w+)\]", line):
            group = heading[1]
        elif option := re.match(r"#? ?(\w+) = ", line):
            assert (group, option[1]) in known, line


# Messages


def code_strings() -> Iterator[str]:
    """Yield the texts of the code, what is filled in replaced by a zero byte."""
    for path in (ROOT / "acstor").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "\0"
                    for part in node.values
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield re.sub(r"%(\.\d+)?[sdrfg]", "\0", node.value)
    for path in (ROOT / "crates").rglob("src/**/*.rs"):
        for literal in re.findall(r'"((?:[^"\\]|\\.)*)"', path.read_text(), re.DOTALL):
            joined = re.sub(r"\\\n\s*", "", literal)
            yield re.sub(r"\{[^{}]*\}", "\0", joined)


def quoted_messages() -> list[str]:
    """Return the messages that the page explains: the terms of its definitions."""
    found = []
    for line in TROUBLESHOOTING.read_text().splitlines():
        if re.fullmatch(r"(``[^`]+``(, )?)+", line):
            found += re.findall(r"``([^`]+)``", line)
    return found


def test_messages_of_the_troubleshooting_page_are_in_the_code() -> None:
    texts = "\n".join(set(code_strings()))
    messages = quoted_messages()
    assert len(messages) > 60
    missing = [message for message in messages if re.sub(r"<[^<>]+>", "\0", message) not in texts]
    assert missing == []


# Metrics and checks


def test_metrics_of_the_monitoring_page_are_documented() -> None:
    """The pages of the metrics are compared with the code by tests of their own."""
    pages = "".join(path.read_text() for path in ADMIN.glob("metrics-*.rst"))
    named = set(re.findall(r"acstor_\w+", (ADMIN / "monitoring.rst").read_text()))
    assert named
    for name in named:
        assert name.removesuffix("_total") in pages, name


def test_every_check_is_explained() -> None:
    page = (SOURCE / "cli" / "acstor-status.rst").read_text()
    explained = page[page.index("\nChecks\n") :].splitlines()
    terms = {
        part
        for term, following in itertools.pairwise(explained)
        if following.startswith("   ") and term and not term.startswith(" ")
        for part in term.split(", ")
    }
    assert terms == {upgrade.FIRST[0], *(name for name, _ in upgrade.OTHERS)}


def test_data_plane_s_user_may_read_what_is_installed_for_it() -> None:
    """systemd-tmpfiles ran before that, and runs again at the next boot only."""
    installed = [
        (page, words)
        for page, words in commands_of("install")
        if words[-1] in {"/etc/acstor/acstor.conf", "/etc/acstor/tls/host.key"}
    ]
    assert len(installed) >= 3
    for page, words in installed:
        assert words[:4] == ["-m", "0640", "-g", "acstor"], (page, words)


def test_passwords_that_are_installed_are_root_s_alone() -> None:
    installed = [words for _, words in commands_of("install") if words[-1].endswith("secrets.conf")]
    assert [words[:2] for words in installed] == [["-m", "0600"]]
