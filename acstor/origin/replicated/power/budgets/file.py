"""A budget in a file, which an operator or a controller of the building writes."""

from acstor import abandoned_call, exception
from acstor.origin.replicated.power.budgets.base import TEXT_SIZE_MAX, parsed


class FileBudget:
    """A file with one number.

    Replace it as a whole (``rename``): one that is half written may be another number.

    :param path: of the file.
    :param seconds_max: longest time of a read; the file may be on a network.
    """

    def __init__(self, path: str, seconds_max: float) -> None:
        self._path = path
        self._seconds_max = seconds_max

    @property
    def description(self) -> str:
        """Return the place."""
        return f"file {self._path}"

    def read(self) -> float:
        """Return what the file says; see :meth:`.base.BudgetSource.read`."""
        try:
            content = abandoned_call.within(self._seconds_max, self._content)
        except TimeoutError as error:
            raise exception.DeadlineError(
                f"{self.description} was not read within {self._seconds_max:g} s"
            ) from error
        except OSError as error:
            raise exception.UnavailableError(
                f"{self.description}: {error.strerror}",
                hint="correct [power] budget, or write the file",
            ) from error
        if len(content) > TEXT_SIZE_MAX:
            raise exception.CorruptError(f"{self.description} is longer than a number")
        return parsed(content.decode(errors="replace"), self.description)

    def _content(self) -> bytes:
        with open(self._path, "rb") as file:
            return file.read(TEXT_SIZE_MAX + 1)
