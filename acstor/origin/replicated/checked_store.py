"""The store of a member, opened when it is first asked, and asked now and then who it is."""

import threading
import time
from collections.abc import Callable

from acstor import exception
from acstor.origin import base
from acstor.origin.pair import ForwardingOrigin
from acstor.origin.replicated.membership import require_member
from acstor.origin.replicated.power.states import UNTOUCHED
from acstor.origin.replicated.view import MembersView

CHECK_SECONDS = 10.0
"""Time for which a store is believed to be the member that it was."""


class CheckedStore(ForwardingOrigin):
    """A store that is used only while it is the member as which it is configured.

    One that is not mounted, exchanged or behind what the home knows is *unavailable*: what the
    member has is not known then.

    :param name: of the member.
    :param open_store: opens it; may block, and fail.
    :param view: what the home says; read again by calls of the home's own store.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        name: str,
        open_store: Callable[[], base.Origin],
        view: MembersView,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._open = open_store
        self._view = view
        self._clock = clock
        self._lock = threading.Lock()
        self._store: base.Origin | None = None
        self._check_at = clock()
        self._is_closed = False

    @property
    def objects(self) -> base.ObjectStore:
        """The store."""
        return self._checked()

    @property
    def refs(self) -> base.RefStore:
        """The store."""
        return self._checked()

    def close(self) -> None:
        """Close what was opened; a store that hangs just now is left to itself."""
        self._is_closed = True
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _checked(self) -> base.Origin:
        try:
            if self._name == self._view.home:
                self._view.refresh()
            if self._view.power_state(self._name) in UNTOUCHED:
                raise exception.UnavailableError(
                    f"member {self._name} sleeps",
                    hint=f"wake it: 'acstor origin wake {self._name}'",
                )
            store = self._store or self._opened()
            if self._clock() >= self._check_at:
                require_member(self._view.record, self._name, store, is_fresh=False)
                self._check_at = self._clock() + CHECK_SECONDS
        except exception.AcstorError as error:
            if error.is_transient:
                raise
            # What it has is not known, whatever is wrong with it.
            raise exception.UnavailableError(
                f"member {self._name} is not used: {error.message}", hint=error.hint
            ) from error
        return store

    def _opened(self) -> base.Origin:
        """Open the store, outside of the lock, as that may hang; one of two openers' stays."""
        made = self._open()
        with self._lock:
            store = made if self._store is None and not self._is_closed else self._store
            self._store = store
        if store is not made:
            made.close()
        if store is None:
            raise exception.UnavailableError(f"member {self._name} is closed")
        return store
