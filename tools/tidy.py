"""Check the layout rules of CONTRIBUTING.md that no other tool checks.

Prints one line per finding and exits with 1 when there is any.
"""

import ast
import collections
import itertools
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE_LINES_MAX = 600
LONG_FILES = {
    "acstor/_dataplane.pyi": "of one extension module: a stub cannot have parts that do not exist",
}
"""Files of more lines, each with the reason."""
BLOB_BYTES_MAX = 100_000
SVG_BYTES_MAX = 20_000
"""Largest drawing by hand, bytes; programs draw larger ones."""
GENERATED = {
    "Cargo.lock": "what is built is what was tested",
    "fuzz/Cargo.lock": "what is built is what was tested",
    "etc/acstor/acstor.conf.sample": "a wheel is built without what its making imports (RFD 0016)",
}
"""Generated files that are kept nevertheless, each with the reason; a test compares the sample."""
GENERATED_MARK = re.compile(r"do not edit|created with matplotlib|<dc:title>matplotlib", re.I)
GENERATED_MARK_LINES = 20
"""Lines at the top of a file in which it says that it is generated."""
SOURCE_SUFFIXES = {".py", ".pyi", ".rs"}
FOLDER_FILES_MAX = 20
FLAT_FOLDERS = {
    "acstor/cli": "a file for each group of commands",
    "acstor/conf": "a file for each group of options",
    "acstor/drivers/cinder": "one driver, a file for each feature of it",
    "bench/acstor": "one program, the evaluation",
    "crates/overlay/src/scenarios": "a file for each scenario",
    "crates/overlay/src/segments": "one concern, the log of a volume on a disk",
    "tests/probe": "a file for each program that is probed",
    "tests/unit/dataplane": "a file for each module of acstor/dataplane",
}
"""Folders of more source files and no folder in them, each with the reason."""
BANNED_HEADS = re.compile(r"(?:What|Which|Who(?:m|se)?|How|When|Where|Whether|Why)\b")
"""First words of heads that ask for a thing in place of naming it."""
RUST_HEAD = re.compile(r"^(?![ \t]*//[/!]).*\n[ \t]*//[/!] ?(.*)", re.MULTILINE)
"""First line of a run of lines of documentation."""
BANNED_NAMES = {"common", "utils", "util", "manager", "helper", "helpers", "misc"}
FORMER_WORDS = {
    "bell": "doorbell",
    "boarding": "join or start",
    "bookkeeper": "sync",
    "drastic": "severe",
    "duty": "reconciler",
    "ledger": "trace",
    "mood": "fault mode",
    "office": "term",
    "party": "harness",
    "reluctance": "hysteresis level",
    "roster": "registry",
    "sight": "snapshot",
    "strike": "failure",
    "translated": "map errors",
    "wish": "desired state, request or demand",
}
"""Words that grew here and that nobody outside knew, with what the field says."""
DECLARATION = re.compile(
    r"^[^#\"]*\b(?:def|class|fn|struct|enum|trait|mod|type|const|static)\s+([A-Za-z_]\w*)"
)
NAME_PART = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
CRATE_ARROWS = {
    "types": set(),
    "ring": {"types"},
    "pack": {"types"},
    "diskio": set(),
    "manifest": {"types"},
    "store": {"types", "diskio"},
    "runclock": set(),
    "selection": set(),
    "net": set(),
    "multicast": {"types"},
    "peer": {"types", "runclock", "selection", "net"},
    "readpath": {"types", "ring", "manifest", "pack", "store", "net", "peer", "runclock"}
    | {"selection"},
    "members": {"types", "readpath", "selection"},
    "rados": {"types", "readpath"},
    "fuse": {"types", "readpath"},
    "overlay": {"types", "diskio", "manifest", "pack", "readpath"},
    "nbd": {"types", "net", "readpath", "overlay"},
    "testkit": {"types"},
    "fuzzing": {"types", "ring", "manifest", "pack", "store", "peer", "readpath", "fuse", "overlay"}
    | {"nbd", "rados", "multicast"},
    "host": {"types", "ring", "store", "runclock", "peer", "readpath", "fuse", "overlay", "nbd"}
    | {"multicast", "members"},
    "browse": set(),
    "pyext": {"types", "browse", "ring", "manifest", "pack", "readpath", "rados", "fuse", "overlay"}
    | {"host", "members"},
    "simcore": {"types", "ring", "store", "selection"},
    "simext": {"ring", "simcore"},
}
KNOW_PYO3 = ("pyext", "simext")
PURE_CRATES = {"selection"}
"""Crates of decisions only: no dependency, no clock, nothing that waits or reaches outside."""
IMPURE = re.compile(
    r"\bInstant\b|\bSystemTime\b|\bstd::(env|fs|io|net|process|sync(?!::Arc;)|thread)\b"
)
"""Clocks, locks and I/O. What is shared and never changes needs no lock."""
PACKAGE_FLOORS = (
    {"exception", "version", "states", "files", "sockets", "alarm", "backoff"}
    | {"path_walk", "untrusted_json", "rate_limit"},
    {"service", "nbd_connection", "warning_filters", "oid", "native", "private_files"}
    | {"child_process"},
    {"conf", "control", "http_server", "nbd_block_status", "origin", "supervision"} | {"telemetry"},
    {"identity", "cluster", "mounting", "repository", "rpc"},
    {"browsing", "preload"},
    {"drivers", "policy", "registrar", "revocation", "scheduler", "splitting"} | {"versions"},
    {"agent", "dataplane"},
    {"api", "checks", "cli"},
    {"cmd", "wsgi"},
)
"""Packages and modules of acstor/, from the bottom: each imports from below only."""
HOUSES = {
    "acstor": {"acstor"},
    "acstorclient": {"acstorclient"},
    "acstor_dashboard": {"acstor_dashboard", "acstorclient"},
    "testbed": {"acstor", "testbed"},
    "sim": {"acstor", "testbed", "sim"},
    "bench": {"acstor", "testbed", "sim", "bench"},
    "tests": {"acstor", "acstorclient", "acstor_dashboard", "testbed", "sim", "bench", "tests"},
}
"""Packages that each top-level package of Python may import; only the first is in the wheel.

The second and the third are distributions of their own, for machines on which nothing else of
ACStor is.
"""
DISTRIBUTIONS = {"clients", "dashboard"}
"""Folders of further distributions, each of which has its packages in it."""
FLOOR = {room: level for level, rooms in enumerate(PACKAGE_FLOORS) for room in rooms}
OPENSTACK_MODULES = {
    "nova",
    "cinder",
    "glance",
    "horizon",
    "openstack_dashboard",
    "ceilometer",
    "os_brick",
}
MAY_DECODE_JSON = (
    "testbed/",  # what its own processes say
    "acstor/untrusted_json.py",
    "acstor/drivers/nova/volumes/online_extend.py",  # of QEMU, in one attempt that may fail
)
MAY_IMPORT_EVENTLET = ("acstor/drivers/cinder/native_threads.py",)  # only in a patched process
MAY_IMPORT_OPENSTACK = ("acstor/drivers/", "acstor/scheduler/")


def tracked_files() -> list[pathlib.Path]:
    """Return the files that git tracks or would track."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def imported_modules(tree: ast.Module) -> Iterator[str]:
    """Yield the absolute names of the modules that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def check_size(name: str, path: pathlib.Path) -> Iterator[str]:
    """Yield findings about a file's size."""
    if path.suffix in SOURCE_SUFFIXES and name not in LONG_FILES:
        lines = path.read_text().count("\n")
        if lines > FILE_LINES_MAX:
            yield f"{name}: {lines} lines; split it by what it is for (at most {FILE_LINES_MAX})"
    if path.name != "Cargo.lock" and path.stat().st_size > BLOB_BYTES_MAX:
        yield f"{name}: larger than {BLOB_BYTES_MAX} bytes"


def check_generated(name: str, path: pathlib.Path) -> Iterator[str]:
    """Yield findings about files that a program wrote."""
    if name in GENERATED or name.startswith(("tools/tidy", "tests/unit/test_tidy")):
        return
    if path.suffix == ".svg" and path.stat().st_size > SVG_BYTES_MAX:
        yield f"{name}: larger than {SVG_BYTES_MAX} bytes; keep what it is drawn from"
    head = path.read_bytes()[:BLOB_BYTES_MAX].splitlines()[:GENERATED_MARK_LINES]
    if GENERATED_MARK.search(b"\n".join(head).decode(errors="replace")):
        yield f"{name}: is generated; keep what it is made of (plots: bench/results), and ignore it"


def flat_folders(
    names: Iterable[str], exceptions: Mapping[str, str] = FLAT_FOLDERS
) -> Iterator[str]:
    """Yield findings about folders of many source files without a folder of such in them.

    :param exceptions: folders that may be like that.
    """
    own: dict[str, int] = collections.defaultdict(int)
    above: set[str] = set()
    for name in sorted(names):
        path = pathlib.PurePath(name)
        if path.suffix in SOURCE_SUFFIXES:
            own[str(path.parent)] += path.name != "__init__.py"
            above.update(map(str, path.parent.parents))
    for folder, count in own.items():
        if count > FOLDER_FILES_MAX and folder not in above | exceptions.keys():
            yield (
                f"{folder}: {count} source files side by side; sort them into folders "
                f"(at most {FOLDER_FILES_MAX})"
            )


def check_name(name: str, path: pathlib.Path) -> Iterator[str]:
    """Yield findings about a file's or folder's name."""
    for part in [*path.relative_to(ROOT).parts[:-1], path.stem]:
        if part.lower() in BANNED_NAMES:
            yield f"{name}: nothing is called {part!r}; name it after its concept"


def docs_of(tree: ast.Module) -> Iterator[str]:
    """Yield the docs of modules, classes, functions, and of what is assigned."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
            for assigned, following in itertools.pairwise(node.body):
                match assigned, following:
                    case (
                        ast.Assign() | ast.AnnAssign(),
                        ast.Expr(value=ast.Constant(value=str(doc))),
                    ):
                        yield doc


def heads_of(path: pathlib.Path) -> Iterator[str]:
    """Yield the first lines of the docs in a file."""
    if path.suffix == ".rs":
        yield from RUST_HEAD.findall("\n" + path.read_text())
    elif path.suffix in SOURCE_SUFFIXES:
        yield from (doc.partition("\n")[0] for doc in docs_of(ast.parse(path.read_text())))


def check_heads(name: str, path: pathlib.Path) -> Iterator[str]:
    """Yield findings about heads of docs that name nothing."""
    for head in heads_of(path):
        if BANNED_HEADS.match(head):
            yield f"{name}: {head!r} asks; begin with a noun or an imperative"


def check_words(name: str, path: pathlib.Path) -> Iterator[str]:
    """Yield findings about declarations that are called by a word of before."""
    if path.suffix not in SOURCE_SUFFIXES:
        return
    for number, line in enumerate(path.read_text().splitlines(), 1):
        declared = DECLARATION.search(line.split("//")[0])
        if declared is None:
            continue
        for part in map(str.lower, NAME_PART.findall(declared[1])):
            for word in {
                part,
                part.removesuffix("s"),
                part.removesuffix("es"),
            } & FORMER_WORDS.keys():
                yield f"{name}:{number}: {declared[1]}: say {FORMER_WORDS[word]}, not {word}"


def check_markers(name: str, path: pathlib.Path) -> Iterator[str]:
    """Yield findings about work left for later."""
    if path.suffix not in {".py", ".rs", ".sh"} or name.startswith(("tests/", "tools/tidy")):
        return
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if re.search(r"\b(TODO|FIXME|XXX|HACK)\b|unimplemented!|todo!\(", line):
            yield f"{name}:{number}: work left for later"


def check_python_imports(name: str, path: pathlib.Path) -> Iterator[str]:
    """Yield findings about what a Python file imports."""
    if path.suffix != ".py" or not name.startswith("acstor/"):
        return
    for module in sorted(set(imported_modules(ast.parse(path.read_text())))):
        if module.split(".")[0] in OPENSTACK_MODULES and not name.startswith(MAY_IMPORT_OPENSTACK):
            yield f"{name}: imports {module}; only drivers and scheduler import OpenStack"
        if module == "acstor._dataplane" and name != "acstor/native.py":
            yield f"{name}: imports acstor._dataplane; only acstor/native.py does"
        if module.split(".")[0] == "eventlet" and name not in MAY_IMPORT_EVENTLET:
            yield f"{name}: imports eventlet"


def check_package_arrows(name: str, path: pathlib.Path) -> Iterator[str]:
    """Yield findings about imports that point up, or sideways, among our own packages.

    Imports for type checkers and those inside of functions count like all others.
    """
    house, *rooms = pathlib.PurePath(name).with_suffix("").parts
    if house in DISTRIBUTIONS:
        house, *rooms = rooms
    if path.suffix != ".py" or house not in HOUSES or not rooms:
        return
    for module in sorted(set(imported_modules(ast.parse(path.read_text())))):
        other, *others = module.split(".")
        if other in HOUSES and other not in HOUSES[house]:
            yield f"{name}: imports {module}; {house} must not depend on {other}"
        if not (house == other == "acstor" and others and others[0] in FLOOR):
            continue
        if rooms[0] == others[0] or rooms[0] == "__init__":
            continue
        if rooms[0] not in FLOOR:
            yield f"{name}: {rooms[0]} has no floor in PACKAGE_FLOORS"
        elif FLOOR[rooms[0]] <= FLOOR[others[0]]:
            yield f"{name}: imports {module}; {rooms[0]} is not above {others[0]}"


def check_json(name: str, path: pathlib.Path) -> Iterator[str]:
    """Yield findings about how a Python file reads JSON that others may have written."""
    if path.suffix != ".py" or not name.startswith("acstor/") or name.startswith(MAY_DECODE_JSON):
        return
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if re.search(r"\bjson\.loads?\(|\.json\(\)", line):
            yield f"{name}:{number}: reads JSON; only acstor/untrusted_json.py does"


def check_crate_arrows(name: str, path: pathlib.Path) -> Iterator[str]:
    """Yield findings about what a crate depends on."""
    if path.name != "Cargo.toml" or path.parent.parent.name != "crates":
        return
    dependencies = path.read_text().partition("[dev-dependencies]")[0]
    found = set(re.findall(r"^acstor-(\w+)", dependencies, re.MULTILINE))
    for extra in sorted(found - CRATE_ARROWS.get(path.parent.name, set())):
        yield f"{name}: {path.parent.name} must not depend on {extra}"
    if "pyo3" in dependencies and path.parent.name not in KNOW_PYO3:
        yield f"{name}: only {' and '.join(KNOW_PYO3)} know PyO3"


def check_pure_crates(name: str, path: pathlib.Path) -> Iterator[str]:
    """Yield findings about clocks, locks and I/O in crates that have none."""
    house, _, rest = name.removeprefix("crates/").partition("/")
    if not name.startswith("crates/") or house not in PURE_CRATES:
        return
    if rest == "Cargo.toml" and "[dependencies]" in path.read_text():
        yield f"{name}: a pure crate has no dependencies"
    if rest.startswith("src/") and path.suffix == ".rs":
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = IMPURE.search(line)
            if found:
                yield f"{name}:{number}: {found[0]} in a pure crate"


def check_format_pages() -> Iterator[str]:
    """Yield findings about formats without a page or a golden file."""
    pages = ROOT / "doc/source/reference/formats"
    golden = [path.name for path in (ROOT / "tests/golden").iterdir()]
    for page in sorted(pages.glob("*.rst")):
        stem = page.stem
        if stem != "index" and not any(name.startswith(stem) for name in golden):
            yield f"doc/source/reference/formats/{stem}.rst: no golden file tests/golden/{stem}*"


def main() -> int:
    """Run every check."""
    files = tracked_files()
    findings = list(check_format_pages())
    findings.extend(flat_folders(str(path.relative_to(ROOT)) for path in files))
    for path in files:
        name = str(path.relative_to(ROOT))
        for check in (
            check_size,
            check_generated,
            check_name,
            check_heads,
            check_words,
            check_markers,
            check_python_imports,
            check_package_arrows,
            check_json,
            check_crate_arrows,
            check_pure_crates,
        ):
            findings.extend(check(name, path))
    for finding in findings:
        print(finding)  # noqa: T201 - this is the program's output
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
