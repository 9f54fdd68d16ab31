"""The dashboard in a browser: each page as users see it, and what they do there by keyboard.

All in one file: one browser and one Horizon serve a whole file.
"""

import re
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from acstor.api.user_services import Kind, SeenThing
from acstor.cluster.member import Member
from acstor.cluster.ring.decision import DECISION_REF, Decision
from acstor.cluster.ring.published_ring import RING_REF
from acstor.native import RingHost, build_ring
from acstor.origin.memory import MemoryOrigin
from acstor.origin.replicated.members_status import MembersStatus, MemberStatus, write_status
from acstor.origin.replicated.membership import Membership
from acstor.repository.versions.record import DiskKind, DiskName
from acstor.telemetry.host_states import HostState
from tests.interop.dashboard.browser import DIALOG, OWN_PART, Browser
from tests.unit.api.setting import IMAGE, SERVER
from tests.unit.dashboard.trusting_api import Api

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

VERSIONS = "/project/acstor_versions/"
SCHEDULES = "/project/acstor_schedules/"
TASKS = "/project/acstor_tasks/"
CLUSTER = "/admin/acstor_cluster/"
IMAGES = "/admin/acstor_images/"
DECISIONS = "/admin/acstor_decisions/"
ORIGINS = "/admin/acstor_origins/"
USAGE = "/admin/acstor_usage/"
NASTY = "<img src=x onerror=alert(1)>{$7*7$}{{7*7}}"
DISK = DiskName(DiskKind.INSTANCE, SERVER, "vda")
SCHEDULE = {"at": "02:30", "keep": {"last": 3, "daily": 14}}


def add_version(api: Api, **fields: Any) -> str:
    """Make a version of the server, an hour after the last one, and return its id."""
    setting = api.setting
    setting.clock.now = setting.later(hours=1)
    known = {"name": "before-upgrade", "disk": DISK, "created_at": setting.clock.now}
    return setting.add_version(**{**known, **fields})


def add_hosts(api: Api) -> None:
    """Have a cluster of three hosts, one of which is gone."""
    setting = api.setting
    setting.members = {
        name: Member(name, "192.0.2.1:9470", f"{name}:9471", 200 << 30, "0.1.0", topology="r1")
        for name in ("cmp-1", "cmp-2")
    }
    hosts = [RingHost(f"cmp-{number}", f"192.0.2.{number}:1", 100) for number in (1, 2, 3)]
    setting.origin.swap_ref(RING_REF, None, build_ring(hosts, 64).encode())
    tell(api, "cmp-1", 1, moved_in=100e6, moved_out=10e6, load=0.9, coverage={IMAGE: 1.0})
    tell(api, "cmp-2", 1, moved_in=0.0, moved_out=60e6)


def tell(api: Api, host: str, sequence: int, **fields: Any) -> None:
    """Have a host tell its state."""
    known = {"host": host, "sequence": sequence, "release": "0.1.0"}
    state = HostState(**{**known, "is_up": True, "is_draining": False, **fields})
    api.setting.watch.note(state.to_message())


def add_target(api: Api, schedule: str) -> None:
    """Have a schedule take versions of the server."""
    path = f"/v1/schedules/{schedule}/targets/{SERVER}"
    answer = api.setting.member.ask("PUT", path, {"target": {"type": "server"}})
    assert answer.status_code < 300, answer.text


def add_all(api: Api) -> dict[str, str]:
    """Have an administrator, and one of everything; return ids."""
    setting = api.setting
    api.role = "admin"
    ids = {"version": add_version(api), "other": add_version(api, name="nightly")}
    ids["schedule"] = setting.add_schedule(**SCHEDULE)
    add_target(api, ids["schedule"])
    ids["task"] = setting.add_task()
    add_hosts(api)
    setting.user_services.seen[Kind.IMAGE] = [SeenThing(IMAGE, "debian-12", 1 << 30)]
    setting.user_services.owners[IMAGE] = setting.project
    decision = Decision(4, 112, "ctl-1", 1_000, "headroom", {"cmp-1": 5_000}, reason="busy uplink")
    setting.origin.swap_ref(DECISION_REF, None, decision.encode())
    add_members(api)
    return ids


def add_members(api: Api) -> None:
    """Have the origin be in two stores, one of which is away and lacks something."""
    origin = api.setting.origin
    Membership("nfs", {"nfs": origin, "ceph": MemoryOrigin()}).create()
    lacking = MemberStatus(False, 5 << 30, 0, 2, 61.4, f"ceph did not answer {NASTY}")
    write_status(origin, MembersStatus(1_000.0, "ctl1", 1_000.0, {"ceph": lacking}))


def pages(ids: dict[str, str], project: str) -> list[str]:
    """Return the paths of all pages, and of the forms as pages of their own."""
    version = f"{VERSIONS}{ids['version']}/"
    schedule = f"{SCHEDULES}{ids['schedule']}/"
    return [
        VERSIONS,
        f"{VERSIONS}servers/{SERVER}/",
        f"{VERSIONS}take/",
        version,
        f"{version}compare/",
        *(f"{version}{form}/" for form in ("boot", "restore", "export", "edit", "lock", "delete")),
        SCHEDULES,
        f"{SCHEDULES}create/",
        schedule,
        f"{schedule}edit/",
        f"{schedule}delete/",
        TASKS,
        f"{TASKS}{ids['task']}/",
        CLUSTER,
        f"{CLUSTER}hosts/cmp-1/drain/",
        IMAGES,
        f"{IMAGES}{IMAGE}/",
        f"{IMAGES}{IMAGE}/preload/",
        DECISIONS,
        f"{DECISIONS}pins/create/",
        ORIGINS,
        f"{ORIGINS}members/ceph/drain/",
        f"{USAGE}?project={project}",
    ]


DRAWN = """
var colours = {};
document.querySelectorAll('.acstor svg text').forEach(function (it) {
  colours[getComputedStyle(it).fill] = 1;
});
return [Object.keys(colours), getComputedStyle(document.querySelector('.acstor')).color,
        getComputedStyle(document.body).backgroundColor];
"""
"""Colours of the texts in drawings, of the text around them, and of the ground."""


def problems(browser: Browser, theme: str) -> list[str]:
    """Return what is wrong with the page that is shown: a line each.

    axe-core does not look into drawings. Theirs is the contrast of the text around them.
    """
    found = browser.take_console() + browser.accessibility()
    drawn, text, ground = browser.driver.execute_script(DRAWN)
    if drawn not in ([], [text]):
        found.append(f"drawing of the colours {drawn}, text of {text}")
    if is_dark(ground) != (theme == "dark") or is_dark(text) == is_dark(ground):
        found.append(f"text of {text} on {ground}")
    return found


def check_pages(browser: Browser, paths: list[str], theme: str) -> None:
    """Have every page be without problems."""
    found = {}
    for path in paths:
        browser.open(path)
        browser.find(OWN_PART)
        found[path] = problems(browser, theme)
    lines = [f"{path}: {line}" for path, lines in found.items() for line in lines]
    assert not lines, "\n".join(lines)


def test_pages_are_fit_for_everybody(browser: Browser, api: Api) -> None:
    """Nothing in the console, nothing refused by the policy, nothing that axe-core finds."""
    ids = add_all(api)
    browser.sign_in(VERSIONS)
    check_pages(browser, pages(ids, api.setting.project), "default")


def test_pages_are_fit_for_the_dark(browser: Browser, api: Api) -> None:
    ids = add_all(api)
    browser.sign_in(VERSIONS, "dark")
    timeline = f"{VERSIONS}servers/{SERVER}/"
    delete = f"{VERSIONS}{ids['version']}/delete/"
    check_pages(browser, [VERSIONS, timeline, delete, CLUSTER, DECISIONS], "dark")


def is_dark(colour: str) -> bool:
    """Return whether a colour, as style has it, is nearer to black than to white."""
    red, green, blue = map(int, re.findall(r"\d+", colour)[:3])
    return red + green + blue < 3 * 128


def open_by_keyboard(browser: Browser, text: str) -> None:
    """Open a dialog without a pointer, and have the focus go into it."""
    browser.tab_to(text)
    browser.press(Keys.ENTER)
    browser.find(f"{DIALOG} form")
    inside = "return !!document.activeElement.closest(arguments[0]);"
    browser.until(
        lambda: browser.driver.execute_script(inside, DIALOG), f"the focus is in the dialog {text}"
    )
    found = browser.accessibility(f"{DIALOG} form")
    assert not found, "\n".join(found)


def send_by_keyboard(browser: Browser, text: str) -> None:
    """Press the button of a dialog without a pointer."""
    browser.tab_to(text, DIALOG)
    browser.press(Keys.ENTER)


def test_version_is_taken_by_keyboard(browser: Browser, api: Api) -> None:
    browser.sign_in(VERSIONS)
    open_by_keyboard(browser, "Take Version")
    browser.tab_to("Name or ID", DIALOG)
    browser.press(SERVER)
    browser.tab_to("Version Name", DIALOG)
    browser.press("by-keyboard")
    send_by_keyboard(browser, "Take Version")
    browser.until_text("Take a version")
    assert TASKS in browser.driver.current_url
    (task,) = api.setting.member.get("/v1/tasks").json["tasks"]
    assert task["kind"] == "create"


def test_version_is_booted_by_keyboard(browser: Browser, api: Api) -> None:
    version = add_version(api)
    browser.sign_in(f"{VERSIONS}{version}/")
    open_by_keyboard(browser, "Boot as New Server")
    send_by_keyboard(browser, "Make Bootable")
    browser.until(lambda: TASKS in browser.driver.current_url, "the page of the task")


def test_version_is_restored_by_keyboard(browser: Browser, api: Api) -> None:
    version = add_version(api)
    browser.sign_in(f"{VERSIONS}{version}/")
    open_by_keyboard(browser, "Restore")
    assert "What was written since" in browser.text(DIALOG)
    send_by_keyboard(browser, "Restore")
    browser.until(lambda: TASKS in browser.driver.current_url, "the page of the task")


def test_version_is_locked_and_deleted_by_keyboard(browser: Browser, api: Api) -> None:
    version = add_version(api)
    path = f"{VERSIONS}{version}/"
    browser.sign_in(path)
    open_by_keyboard(browser, "Lock")
    browser.tab_to("Reason", DIALOG)
    browser.press("audit", Keys.ENTER)
    browser.until_text("audit")
    api.role = "manager"
    browser.forget()
    browser.sign_in(path)
    open_by_keyboard(browser, "Unlock")
    send_by_keyboard(browser, "Unlock")
    browser.until(lambda: browser.driver.current_url.endswith(VERSIONS), "the list")
    browser.open(path)
    open_by_keyboard(browser, "Delete")
    assert "Nothing brings it back." in browser.text(DIALOG)
    send_by_keyboard(browser, "Delete Version")
    browser.until_text("No items to display.")


def test_dialog_is_left_by_the_escape_key(browser: Browser, api: Api) -> None:
    version = add_version(api)
    browser.sign_in(f"{VERSIONS}{version}/")
    open_by_keyboard(browser, "Delete")
    browser.press(Keys.ESCAPE)
    browser.until(lambda: not browser.has(DIALOG), "the dialog is gone")
    assert "GET" in {call.method for call in api.calls}
    assert "DELETE" not in {call.method for call in api.calls}


def test_row_menu_is_used_by_keyboard(browser: Browser, api: Api) -> None:
    add_version(api)
    browser.sign_in(VERSIONS)
    browser.tab_to("Boot as New Server")
    browser.press(Keys.TAB, Keys.ENTER)
    open_by_keyboard(browser, "Delete")
    send_by_keyboard(browser, "Delete Version")
    browser.until_text("No items to display.")


def test_schedule_is_made_with_a_preview(browser: Browser, api: Api) -> None:
    browser.sign_in(SCHEDULES)
    open_by_keyboard(browser, "Create Schedule")
    browser.tab_to("Name", DIALOG)
    browser.press("nightly")
    send_by_keyboard(browser, "Create Schedule")
    browser.until_text("nightly")
    (schedule,) = api.setting.member.get("/v1/schedules").json["schedules"]
    add_target(api, schedule["id"])
    browser.open(f"{SCHEDULES}{schedule['id']}/")
    assert "Next runs" in browser.text()


def test_task_is_followed_while_it_runs(browser: Browser, api: Api) -> None:
    task = api.setting.add_task()
    browser.sign_in(f"{TASKS}{task}/")
    assert "It goes on when you leave this page" in browser.text()
    api.setting.member.ask("DELETE", f"/v1/tasks/{task}")
    browser.until_text("Cancelled")


def test_cluster_is_live(browser: Browser, api: Api) -> None:
    """The picture follows what hosts tell, without a reload and without losing the keyboard."""
    api.role = "admin"
    add_hosts(api)
    browser.sign_in(CLUSTER)
    script = "return document.querySelector('svg.acstor-flow').textContent;"
    assert "95.4 MB/s" in browser.driver.execute_script(script).replace("\xa0", " ")
    browser.driver.execute_script("window.acstorSame = true;")
    tell(api, "cmp-1", 2, moved_in=40e6, moved_out=10e6, load=0.1)
    browser.until(
        lambda: "38.1 MB/s" in browser.driver.execute_script(script).replace("\xa0", " "),
        "the picture follows",
    )
    assert browser.driver.execute_script("return window.acstorSame;")
    api.answer = ("503 Service Unavailable", b"{}")
    browser.until(lambda: browser.has("[data-acstor-failure]"), "the page says what failed")
    assert browser.has(".acstor-stale svg.acstor-flow"), "the last picture stays, pale"
    api.answer = None
    browser.until(lambda: not browser.has("[data-acstor-failure]"), "it is said no more")
    assert browser.has("svg.acstor-flow")
    assert not browser.has(".acstor-stale")


def test_live_part_leaves_the_keyboard_where_it_is(browser: Browser, api: Api) -> None:
    api.role = "admin"
    add_hosts(api)
    browser.sign_in(CLUSTER)
    browser.tab_to("Drain")
    tell(api, "cmp-2", 2, moved_in=1e6, moved_out=60e6)
    browser.press(Keys.ENTER)
    browser.until_text("The share of cmp-1")


def test_names_are_shown_as_text(browser: Browser, api: Api) -> None:
    """Neither markup nor AngularJS' braces do anything: an alert would fail the next command."""
    version = add_version(api, name=NASTY, labels={"a": NASTY})
    browser.sign_in(VERSIONS)
    for path in (VERSIONS, f"{VERSIONS}servers/{SERVER}/", f"{VERSIONS}{version}/"):
        browser.open(path)
        part = browser.text()
        assert "<img src=x onerror=alert(1)>" in part, path
        assert "{{7*7}}" in part, path
        assert "49" not in part.replace(version, "").replace(SERVER, ""), path
    browser.open(f"{VERSIONS}{version}/")
    open_by_keyboard(browser, "Delete")
    assert "{{7*7}}" in browser.text(DIALOG)


def test_pages_are_readable_without_scripts(browser: Browser, api: Api) -> None:
    ids = add_all(api)
    browser.sign_in(VERSIONS)
    with browser.without_scripts():
        for path in (f"{VERSIONS}servers/{SERVER}/", f"{SCHEDULES}{ids['schedule']}/", DECISIONS):
            browser.open(path)
            browser.find(f"{OWN_PART} table")
        browser.open(VERSIONS)
        assert "before-upgrade" in browser.text("#versions")
        browser.open(CLUSTER)
        assert "cmp-1" in browser.text(f"{OWN_PART} table")
        browser.open(f"{VERSIONS}{ids['version']}/lock/")
        browser.find("#id_reason").send_keys("audit", Keys.ENTER)
        browser.until(lambda: browser.driver.current_url.endswith(VERSIONS), "the form was sent")
    browser.take_console()


def test_member_sees_nothing_of_the_administrators(browser: Browser, api: Api) -> None:
    browser.sign_in(VERSIONS)
    assert not browser.has(f"a[href='{CLUSTER}']")
    assert browser.has(f"#sidebar a[href='{TASKS}']")
    api.role = "admin"
    browser.forget()
    browser.sign_in(CLUSTER)
    for path in (CLUSTER, IMAGES, DECISIONS, USAGE):
        assert browser.has(f"#sidebar a[href='{path}']")
