"""The installation that runtime tests start: a program whose steps add, fail, hang, lie and die."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import warnings

import numpy as np

from fedsvm.algorithms.dp_erm.algorithm import ErmSite
from fedsvm.algorithms.dpp_svm.site import DppSite
from fedsvm.algorithms.hybrid_svm.algorithm import HybridSite
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.processes.forkserver import main
from fedsvm.federation.site.program import Installation, SiteProgram, step, steps_of
from fedsvm.federation.site.script import Script, any_order, repeat, seq
from fedsvm.federation.site.terms import Terms
from fedsvm.protocols.common_seed import common_seed
from tests.broken_sums import ALL_SUMS


class Drill(SiteProgram):
    """Steps for tests of the runtime. The partition holds one array, `rows`. What it does ahead fails."""

    worked_ahead = 0.0

    def work_ahead(self) -> None:
        self.worked_ahead += 1
        raise ZeroDivisionError("what is done ahead is nobody's concern")

    @step
    def ahead(self) -> FloatArray:
        return np.full(3, self.worked_ahead)

    @step
    def total(self, factor: float = 1.0) -> FloatArray:
        return factor * np.asarray(self.partition.arrays["rows"].sum(axis=0))

    @step(public=True)
    def model(self) -> FloatArray:
        return self.total()

    @step
    def echo(self, vector: FloatArray) -> FloatArray:
        return vector

    @step
    def fail(self, site: str) -> FloatArray:
        if self.site == site:
            raise ZeroDivisionError("the drill asked for it")
        return np.zeros(3)

    @step
    def die(self, site: str) -> FloatArray:
        if self.site == site:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.zeros(3)

    @step
    def hang(self, site: str) -> FloatArray:
        if self.site == site:
            threading.Event().wait(3600)
        return np.zeros(3)

    @step
    def work(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    @step
    def not_finite(self, site: str) -> FloatArray:
        return np.full(3, np.nan if self.site == site else 0.0)

    @step
    def wrong_shape(self, site: str) -> FloatArray:
        return np.zeros(4 if self.site == site else 3)

    @step
    def tell(self) -> None:
        """Show the next site this one's rows."""
        sites, rows = self.channel.sites, np.asarray(self.partition.arrays["rows"])
        place = sites.index(self.site)
        self.channel.send(sites[(place + 1) % len(sites)], rows)
        self.channel.receive(sites[place - 1], rows.shape, np.float64)

    @step
    def agree(self) -> None:
        self.seed = common_seed(self.channel)

    @step(opens="value")
    def agreed(self) -> FloatArray:
        return (self.seed >> np.uint64(32)).astype(np.float64)

    @step(remembered=True)
    def keep(self, number: float) -> None:
        self.number = number

    @step(opens="value")
    def kept(self) -> FloatArray:
        return np.array(self.number)

    @step(opens="value")
    def received(self) -> FloatArray:
        return getattr(self, "opened", np.zeros(3))

    @step(opens="value")
    def modules(self) -> FloatArray:
        heavy = {"sklearn", "pydantic", "typer", "rich", "piqp", "pyarrow"}
        return np.array(float(len(heavy & sys.modules.keys())))

    @step
    def log(self, site: str, text: str, times: int = 1, then: str = "") -> None:
        """Log at one site, and then perhaps die."""
        if self.site != site:
            return
        for number in range(times):
            logging.getLogger("drill").warning("%s, %d, %s", text, number, self.partition.arrays["rows"])
        if then == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif then == "exits":
            os._exit(3)

    @step
    def log_in_all_ways(self) -> None:
        rows, logger = self.partition.arrays["rows"], logging.getLogger("drill")
        logger.info("of no interest")
        logger.error(rows)
        logger.error("%(rows)s and %(count)d", {"rows": rows, "count": np.int64(7)})
        logger.warning("%d columns", rows)
        logger.critical("x" * 600)
        warnings.warn(f"a library\n  warns of {len(rows)} rows", RuntimeWarning, stacklevel=1)
        try:
            raise ValueError(f"cannot be: {rows[0, 0]}")
        except ValueError as error:
            logger.exception("a value cannot be read: %s", error)
        logger.error("no file %s", os.fsdecode(b"\xff\x1b[2J"))  # half of a surrogate pair, which no message can carry
        thread = threading.Thread(target=lambda: logger.warning("by a thread of its own"))
        thread.start()
        thread.join()

    def unmarked(self) -> FloatArray:
        return np.zeros(3)


class Undecided(Drill):
    """A program that cannot tell its script."""

    @classmethod
    def script(cls, terms: Terms) -> Script:
        raise ValueError("no setting of this name")


class Ordered(Drill):
    """A program whose steps come in one order."""

    @classmethod
    def script(cls, terms: Terms) -> Script:
        return seq(repeat("keep"), "work", "kept")


class AnyOrder:
    """Steps of an algorithm that a test orders by themselves."""

    @classmethod
    def script(cls, terms: Terms) -> Script:
        return any_order(steps_of(cls))  # type: ignore[arg-type]


class Dpp(AnyOrder, DppSite):
    """DPP-SVM, step by step."""


class Hybrid(AnyOrder, HybridSite):
    """The hybrid SVM, step by step."""


class Erm(AnyOrder, ErmSite):
    """DP-ERM, step by step."""


PROGRAMS = {
    "drill": Drill,
    "undecided": Undecided,
    "ordered": Ordered,
    "dpp-svm": Dpp,
    "hybrid-svm": Hybrid,
    "dp-erm": Erm,
}

if __name__ == "__main__":
    main(Installation(PROGRAMS, ALL_SUMS), int(sys.argv[1]))
