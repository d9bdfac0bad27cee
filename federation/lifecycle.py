"""The builder of every `Federation`: in simulations, with sites on other hosts, and with sites that visit a hub."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fedsvm.federation.control import MAX_LOG_TEXT, RunOver
from fedsvm.federation.errors import LaunchError, NothingDue, SitesDropped
from fedsvm.federation.federation import Federation, RunObserver
from fedsvm.federation.links import SiteLinks
from fedsvm.federation.membership import DropoutPolicy
from fedsvm.federation.run_journal import Journal
from fedsvm.federation.site.program import SumProtocol
from fedsvm.federation.text import visible


@contextmanager
def running_federation(
    links: SiteLinks,
    sum_protocol: SumProtocol,
    policy: DropoutPolicy,
    round_timeout_s: float,
    observer: RunObserver | None = None,
    journal: Journal | None = None,
) -> Iterator[Federation]:
    """Yield a federation of sites that are up; `federation.assemble()` introduces them to each other.

    When the context ends, the sites receive a stop with the outcome of the run, unless it ends by NothingDue. The
    parameters are those of `Federation`.
    """
    federation = Federation(links, sum_protocol, policy, round_timeout_s, observer or RunObserver(), journal)
    try:
        yield federation
    except NothingDue:
        raise
    except BaseException as error:
        federation.dismiss(_stop_after(error))
        raise
    federation.dismiss(RunOver())


def is_resumable(error: BaseException) -> bool:
    """Return whether a run that failed with this error can be resumed once its sites are reachable."""
    return isinstance(error, SitesDropped | LaunchError)


def _stop_after(error: BaseException) -> RunOver:
    """Return the stop that sites receive after an error. Its text names only sites and rounds."""
    if is_resumable(error):
        return RunOver(visible(str(error))[:MAX_LOG_TEXT], resumable=True)
    if isinstance(error, KeyboardInterrupt):
        return RunOver("its coordinator was interrupted")
    return RunOver("its coordinator has the reason")
