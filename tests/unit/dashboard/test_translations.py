"""Translations: complete, with the same places for values, and shown."""

import pathlib
import re

import pytest
from babel.messages import mofile, pofile
from babel.messages.catalog import Catalog
from django.test import override_settings

from tests.unit.dashboard.sentences import PLUGIN, all_sentences
from tests.unit.dashboard.site import Site, text_of

CATALOGUES = sorted(PLUGIN.glob("locale/*/LC_MESSAGES/*.po"))
PLACE = re.compile(r"%(?:\(\w+\))?[sdg%]|{{[^}]*}}")
"""Place for a value."""


def catalogue(path: pathlib.Path) -> Catalog:
    """Return the sentences of a language."""
    with path.open("rb") as file:
        return pofile.read_po(file)


def test_there_is_a_catalogue() -> None:
    assert [path.parts[-3] for path in CATALOGUES] == ["de"]


@pytest.mark.parametrize("path", CATALOGUES, ids=lambda path: path.parts[-3])
def test_catalogue_has_every_sentence_and_no_other(path: pathlib.Path) -> None:
    found = {message.id: message for message in catalogue(path) if message.id}
    sentences = all_sentences()
    assert len(sentences) > 400
    assert set(found) == set(sentences)
    for message in found.values():
        texts = message.string if isinstance(message.string, tuple) else (message.string,)
        assert all(texts), message.id
        assert not message.fuzzy, message.id


@pytest.mark.parametrize("path", CATALOGUES, ids=lambda path: path.parts[-3])
def test_places_for_values_are_the_same(path: pathlib.Path) -> None:
    for message in catalogue(path):
        plural = message.id if isinstance(message.id, tuple) else (message.id, message.id)
        texts = message.string if isinstance(message.string, tuple) else (message.string,)
        for original, text in zip(plural, texts, strict=False):
            places = set(PLACE.findall(str(original))), set(PLACE.findall(str(text)))
            may_lack = {"%(count)d"} if isinstance(message.id, tuple) else set()
            assert places[0] - may_lack == places[1] - may_lack, message.id


def test_pages_are_in_the_users_language(site: Site, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "de" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    (path,) = CATALOGUES
    with (folder / "django.mo").open("wb") as file:
        mofile.write_mo(file, catalogue(path))
    site.setting.add_version(name="vorher")
    with override_settings(LOCALE_PATHS=[str(tmp_path)]):
        headers = {"Accept-Language": "de"}
        page = text_of(site.browser.get("/project/acstor_versions/", headers=headers))
        cluster = site.browser.get("/project/acstor_versions/take/", headers=headers)
    assert "Wie nach einem Stromausfall" in page
    assert "Version nehmen" in page
    assert "im selben Augenblick genommen" in text_of(cluster)
