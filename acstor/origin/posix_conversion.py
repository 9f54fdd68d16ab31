"""Taking the refs of the former layout over into the present one, and keeping old programs out.

1. All refs are copied to a work folder; everybody goes on.
2. With every lock held, the former folder is put aside (:data:`ASIDE`) and a file, the fence, takes
   its name: from then on nobody changes a ref, not even who waited for a lock, or believes that he
   has one that NFS took away. Programs that know nothing else fail at every ref instead of seeing
   none, or old ones; those of this release answer that the refs are being converted.
3. What changed since it was copied is copied again, and the copy gets its name: the moment from
   which it counts.

Killed at any moment, it is repeated; no ref is removed. Nothing is left in the folder of temporary
files, where a sweep of an older release knows no folders.
"""

import dataclasses
import logging
import os
import shutil

from acstor import exception
from acstor.origin import posix_write
from acstor.origin.posix_former_refs import (
    ASIDE,
    ConvertedError,
    FormerRefs,
    hidden_files_missing,
)
from acstor.origin.posix_former_refs import FOLDER as FORMER_FOLDER
from acstor.origin.posix_presence import is_folder, is_there
from acstor.origin.posix_refs import FOLDER, PosixRefs
from acstor.origin.posix_tree import PosixTree

LOG = logging.getLogger(__name__)

WORK = ".conversion"
"""Directory of the copies under way, a folder for each who copies; removed at the end."""
_FENCE_TEXT = b"The refs of this origin are in .refs; this file keeps older releases from it.\n"


def convert(tree: PosixTree, former: FormerRefs) -> bool:
    """Have the refs of ``tree`` in the present layout.

    :returns: whether they were not before.
    :raises DeadlineError: when somebody holds a lock of the former layout for too long.
    :raises OSError: when a file cannot be read or written; it is to be repeated then.
    """
    # In this order: whoever converts at the same time puts the folder aside, then makes the other.
    is_former = is_folder(tree.path(FORMER_FOLDER))
    is_started = is_folder(tree.path(ASIDE))
    if is_folder(tree.path(FOLDER)):
        _keep_former_programs_out(tree, former)
        return False
    if is_former or is_started:
        is_done = _take_over(tree, former.aside() if is_started else former, former)
        _keep_former_programs_out(tree, former)
        return is_done
    if is_there(tree.path(FORMER_FOLDER)):
        raise hidden_files_missing(tree.path(FORMER_FOLDER))
    # Durable before the fence, which says that it is there.
    tree.make_folder(tree.path(FOLDER))
    _keep_former_programs_out(tree, former)
    return False


def _take_over(tree: PosixTree, source: FormerRefs, former: FormerRefs) -> bool:
    work = tree.path(WORK, posix_write.unique_name())
    try:
        copy = _Copy.begin(tree, work)
        copy.bring_up_to_date(source)
        with former.frozen():
            if is_folder(tree.path(FOLDER)):
                return False  # by somebody else, before we had the locks
            _put_aside(tree)
            copy.bring_up_to_date(former.aside())
            copy.give_name(tree.path(FOLDER))
        # Of those who were killed, too. Who copies still finds that it is not needed any more.
        shutil.rmtree(tree.path(WORK), ignore_errors=True)
        return True
    except (ConvertedError, OSError, exception.AcstorError):
        if not is_folder(tree.path(FOLDER)):
            raise
        return False  # by somebody else, while we copied
    finally:
        shutil.rmtree(work, ignore_errors=True)


@dataclasses.dataclass
class _Copy:
    """The refs in the present layout, in the making."""

    tree: PosixTree
    """Of its own, for the temporary files."""
    refs: PosixRefs
    tokens: dict[str, str]
    """Of the former layout, of what was copied."""

    @classmethod
    def begin(cls, tree: PosixTree, work: str) -> "_Copy":
        tree.forget_folder(tree.path(WORK))
        tree.make_folder(tree.path(WORK))
        tree.make_folder(work)
        inner = PosixTree(work, tree.reserve)
        inner.make_folder(inner.path(FOLDER))
        return cls(inner, PosixRefs(inner, inner.path(FOLDER)), {})

    def bring_up_to_date(self, former: FormerRefs) -> None:
        """Copy what differs from what was copied before."""
        names = former.names("")
        for name in self.tokens.keys() - set(names):
            self._change(name, None)
        for name in sorted(names):
            ref = former.get(name)
            if ref is None:
                self._change(name, None)
            elif self.tokens.get(name) != ref.token:
                self._change(name, ref.content)
                self.tokens[name] = ref.token

    def _change(self, name: str, content: bytes | None) -> None:
        present = self.refs.get(name)
        self.refs.swap(name, present.token if present else None, content)
        if content is None:
            self.tokens.pop(name, None)

    def give_name(self, path: str) -> None:
        posix_write.synchronise_folder(self.tree.path(FOLDER))
        os.rename(self.tree.path(FOLDER), path)
        posix_write.synchronise_folder(os.path.dirname(path))


def _put_aside(tree: PosixTree) -> None:
    """Put the former folder aside and the fence in its place; all locks are held.

    The fence is written before, so that neither a full origin nor a slow disk is between the two.
    """
    path, aside = tree.path(FORMER_FOLDER), tree.path(ASIDE)
    fence = tree.write_temporary([_FENCE_TEXT])
    try:
        if is_folder(path):
            if is_folder(aside):
                # A program of an older release made it in the moment between the two, and the
                # conversion was killed there.
                aside = _free_name(aside)
                LOG.warning("refs that an older release made meanwhile are put aside: %s", aside)
            os.rename(path, aside)
        _link_if_missing(fence, path)
    finally:
        posix_write.remove_if_there(fence)
    posix_write.synchronise_folder(tree.root)


def _keep_former_programs_out(tree: PosixTree, former: FormerRefs) -> None:
    """Have the fence, where the present layout is there."""
    path = tree.path(FORMER_FOLDER)
    if is_folder(path):
        with former.frozen():
            _put_aside(tree)
    elif not is_there(path):
        fence = tree.write_temporary([_FENCE_TEXT])
        try:
            _link_if_missing(fence, path)
        finally:
            posix_write.remove_if_there(fence)
    # Whatever another process did and did not make durable.
    posix_write.synchronise_folder(tree.root)


def _link_if_missing(fence: str, path: str) -> None:
    try:
        posix_write.add_name(fence, path)
    except FileExistsError:
        if is_folder(path):
            raise exception.UnavailableError(
                f"a program of an older release made {path} at the same time",
                hint="let every machine run this release, then repeat 'acstor repository upgrade'",
            ) from None


def _free_name(path: str) -> str:
    """Return a name after ``path`` that nothing has."""
    number = 1
    while is_there(f"{path}-{number}"):
        number += 1
    return f"{path}-{number}"
