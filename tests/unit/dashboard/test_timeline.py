"""Drawing of versions: the same of what a list has, and of as much as it needs."""

from acstor_dashboard import timeline
from acstorclient.v1.version import Version
from tests.unit.dashboard.site import Site
from tests.unit.dashboard.test_versions import add


def test_drawing_needs_no_more_than_it_takes(site: Site) -> None:
    add(site, 3)
    bodies = site.setting.member.get("/v1/versions").json["versions"]
    bodies[0]["lock"] = {"reason": "r", "until": None}
    drawn = timeline.draw([timeline.DrawnVersion.of(body) for body in bodies])
    assert drawn is not None
    assert len(drawn.dots) == 3
    assert drawn == timeline.draw([Version.existing(**body) for body in bodies])


def test_version_of_another_release_is_drawn() -> None:
    body = {"id": "v", "created_at": "2026-11-26T14:05:00Z"}
    drawn = timeline.draw([timeline.DrawnVersion.of(body)])
    assert drawn is not None
    assert drawn.dots[0].radius == timeline.RADIUS_MIN
