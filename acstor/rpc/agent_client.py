"""Calling the agents of other hosts, many at once, none of which holds up the others."""

import concurrent.futures
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import tenacity

from acstor import abandoned_call, exception
from acstor.rpc.agent_server import EXCHANGE, NAMESPACE, TOPIC, VERSION, version_of
from acstor.rpc.signature import Signer

HOSTS_AT_A_TIME_MAX = 32
"""Calls under way at a time."""
ATTEMPTS_MAX = 2
"""Every call may be repeated: asking changes nothing, starting twice the same starts it once."""
_RETRY_WAIT_MAX = 2.0
_MARGIN = 1.0
"""Seconds beyond the timeout in which oslo.messaging itself must have given up."""
_HINT_BROKER = "check that the broker of [DEFAULT] transport_url is up"
_HINT_SILENT = "check that acstor-agent runs there and reaches the message broker"


@dataclass(frozen=True)
class Answer:
    """Response of one host: its result or its error."""

    host: str
    result: Any = None
    error: exception.AcstorError | None = None
    """Reason for which there is no result."""


class AgentClient:
    """Calls methods of agents.

    :param opened: transport of :func:`acstor.rpc.transport.open_transport`.
    :param timeout: seconds that one attempt of one call may take.
    :param signer: signs each attempt; None: they are not signed.
    """

    def __init__(self, opened: Any, timeout: float, signer: Signer | None = None) -> None:
        import oslo_messaging

        self._signer = signer or Signer(None)

        self._messaging = oslo_messaging
        self._timeout = timeout
        self._client = oslo_messaging.get_rpc_client(
            opened,
            oslo_messaging.Target(
                exchange=EXCHANGE, topic=TOPIC, namespace=NAMESPACE, version=VERSION
            ),
            timeout=timeout,
            retry=0,
        )

    def call(self, host: str, method: str, **arguments: object) -> Any:
        """Call one host, again when the broker fails, and return its result.

        A host that is silent for the whole timeout is not asked again.

        :raises DeadlineError: when the host does not answer in time.
        :raises UnavailableError: when it does not listen or the broker cannot be reached.
        :raises AcstorError: of the kind with which the host answers.
        """
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(ATTEMPTS_MAX),
            wait=tenacity.wait_random_exponential(multiplier=0.2, max=_RETRY_WAIT_MAX),
            retry=tenacity.retry_if_exception(_is_worth_repeating),
            reraise=True,
        )
        return _result(host, retrying(self._call_once, host, method, arguments))

    def call_all(
        self, hosts: Iterable[str], method: str, arguments: Mapping[str, Mapping[str, object]]
    ) -> dict[str, Answer]:
        """Call many hosts at the same time.

        :param arguments: of each host, by its name; a host without entry gets none.
        :returns: the answer of every host, in the order of ``hosts``.
        """
        names = list(hosts)

        def ask(host: str) -> Answer:
            try:
                return Answer(host, self.call(host, method, **arguments.get(host, {})))
            except exception.AcstorError as error:
                return Answer(host, error=error)

        if not names:
            return {}
        with concurrent.futures.ThreadPoolExecutor(min(len(names), HOSTS_AT_A_TIME_MAX)) as pool:
            return {answer.host: answer for answer in pool.map(ask, names)}

    def _call_once(self, host: str, method: str, arguments: Mapping[str, object]) -> object:
        messaging = self._messaging
        context = self._signer.context(host, method, arguments)
        prepared = self._client.prepare(
            server=host,
            version=version_of(method),
            # A broker that knows of no such queue says so at once.
            transport_options=messaging.TransportOptions(at_least_once=True),
        )
        try:
            # While the broker is away oslo.messaging waits for it, whatever its own timeout is.
            return abandoned_call.within(
                self._timeout + _MARGIN, lambda: prepared.call(context, method, **arguments)
            )
        except TimeoutError as error:
            raise exception.DeadlineError(
                f"the message broker could not be reached in {self._timeout:g} s",
                hint=_HINT_BROKER,
            ) from error
        except messaging.MessagingTimeout as error:
            raise exception.DeadlineError(
                f"host {host} did not answer in {self._timeout:g} s", hint=_HINT_SILENT
            ) from error
        except messaging.MessageUndeliverable as error:
            raise exception.UnavailableError(
                f"no agent listens on host {host}", hint=_HINT_SILENT
            ) from error
        except messaging.RemoteError as error:
            if error.exc_type in {"UnsupportedVersion", "NoSuchMethod"}:
                raise exception.UnsupportedError(
                    f"the agent of host {host} does not know {method}",
                    hint="upgrade ACStor on that host",
                ) from error
            raise exception.InternalError(
                f"the agent of host {host} failed: {error.exc_type}: {error.value}",
                hint="see the log of acstor-agent there",
            ) from error
        except Exception as error:  # drivers raise what their client libraries raise
            raise exception.UnavailableError(
                f"the message broker cannot be reached: {type(error).__name__}",
                hint=_HINT_BROKER,
            ) from error


def _is_worth_repeating(error: BaseException) -> bool:
    return isinstance(error, exception.UnavailableError) and not isinstance(
        error, exception.DeadlineError
    )


def _result(host: str, answer: object) -> Any:
    if isinstance(answer, Mapping) and "result" in answer:
        return answer["result"]
    error = answer.get("error") if isinstance(answer, Mapping) else None
    if not isinstance(error, Mapping):
        raise exception.InternalError(f"host {host} answered nonsense")
    try:
        kind = exception.ErrorKind(str(error.get("kind")))
    except ValueError:
        kind = exception.ErrorKind.INTERNAL
    hint = error.get("hint")
    raise exception.CLASS_OF_KIND[kind](
        str(error.get("message")), hint=hint if isinstance(hint, str) else None
    )
