"""Placement of objects in the members of an origin, by the states of these.

Objects of images are in all members. Each is put into the home at first: without it there is no ref
that could name the object, and who opens the home alone finds everything. A slot of a volume's log
is a decision about who came first: it is made in the member of its epoch, which who stores it has
to name, and the others get copies (RFD 38, *Where objects are*).
"""

from acstor.origin.replicated.placement import Placed
from acstor.origin.replicated.states import MemberState
from acstor.origin.replicated.view import MembersView

CONTENT_FOLDERS = ("packs/", "manifests/")
"""Folders of what is named by its content."""
DECIDED_FOLDERS = ("moved/",)
"""Folders of what the home decides, and the others get copies of."""
LOG_FOLDER = "volume-log/"
"""Folder of the logs of volumes, with a folder for each of these and one in it for each epoch."""
COPIED_FOLDERS = (*CONTENT_FOLDERS, *DECIDED_FOLDERS)
"""Folders of what all members have."""
_FILLED = (MemberState.ACTIVE, MemberState.JOINING)


class SetPlacement:
    """Placement by the record of the members.

    :param view: what the home says.
    """

    def __init__(self, view: MembersView) -> None:
        self._view = view

    def place(self, key: str) -> Placed:
        """Return the members of an object."""
        home = self._view.home
        if key.startswith(CONTENT_FOLDERS):
            return Placed((home, *self._others()))
        if key.startswith(DECIDED_FOLDERS):
            return Placed((home, *self._others()), is_decided=True)
        if key.startswith(LOG_FOLDER):
            return Placed((home,), is_slot=True)
        return Placed((home,), is_decided=True, is_sole=True)

    def _others(self) -> tuple[str, ...]:
        """Return the members that shall have what the home has, those that are filled last."""
        members = self._view.record.members
        return tuple(
            name
            for state in _FILLED
            for name, entry in members.items()
            if entry.state is state and name != self._view.home
        )
