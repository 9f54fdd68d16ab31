"""Properties of Glance's images, over an adapter whose answers are put here."""

from typing import Any

import keystoneauth1.exceptions
import pytest

from acstor import exception
from acstor.versions.services.images import GlanceImages


class Adapter:
    """Adapter of keystoneauth with one answer."""

    def __init__(self, status_code: int, content: bytes = b"") -> None:
        self.status_code, self.content = status_code, content
        self.error: Exception | None = None

    def get(self, path: str, **options: Any) -> "Adapter":
        assert path == "/v2/images/1a2b"
        assert options["timeout"]
        if self.error is not None:
            raise self.error
        return self


def test_texts_are_properties() -> None:
    adapter = Adapter(200, b'{"acstor_version_on": "shutdown", "min_disk": 5, "tags": []}')
    assert GlanceImages(adapter).properties("1a2b") == {"acstor_version_on": "shutdown"}


def test_missing_image_has_none() -> None:
    assert GlanceImages(Adapter(404)).properties("1a2b") == {}


@pytest.mark.parametrize("adapter", [Adapter(503), Adapter(200, b"nonsense"), Adapter(200, b"[]")])
def test_what_is_no_answer_is_away(adapter: Adapter) -> None:
    with pytest.raises(exception.UnavailableError):
        GlanceImages(adapter).properties("1a2b")


def test_silent_glance_is_away() -> None:
    adapter = Adapter(200)
    adapter.error = keystoneauth1.exceptions.ConnectFailure("refused")
    with pytest.raises(exception.UnavailableError, match="ConnectFailure"):
        GlanceImages(adapter).properties("1a2b")


@pytest.mark.parametrize("image_id", ["", "../x", "x" * 65])
def test_nonsense_is_not_asked_for(image_id: str) -> None:
    with pytest.raises(exception.InvalidError):
        GlanceImages(Adapter(200)).properties(image_id)
