"""An origin that says of refs what somebody else has put there, around any other origin."""

from collections.abc import Iterator

from acstor.origin import base
from acstor.origin.faulty import FaultyOrigin


class LyingOrigin(FaultyOrigin):
    """Answers for some refs with what a test has put into :attr:`lies`; None: there is none.

    What is written goes to the origin behind it, as it is.
    """

    def __init__(self, inner: base.Origin) -> None:
        """Tell the truth, until there are lies."""
        super().__init__(inner)
        self.lies: dict[str, bytes | None] = {}

    def get_ref(self, name: str) -> base.Ref | None:
        """Return the ref's present state, or a lie."""
        found = super().get_ref(name)
        if name not in self.lies:
            return found
        content = self.lies[name]
        if content is None:
            return None
        return base.Ref(found.token if found else "a lie", content)

    def refresh_ref(self, name: str, known: base.Ref | None) -> base.Ref | None:
        """Return the ref's present state, or a lie."""
        return self.get_ref(name)

    def list_refs(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of the refs, those of lies among them."""
        hidden = {name for name, content in self.lies.items() if content is None}
        names = {name for name in self.lies if name.startswith(prefix)} - hidden
        yield from (names | set(super().list_refs(prefix))) - hidden
