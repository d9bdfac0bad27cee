"""The programs and secure sums that a site's own installation registers, which it can be asked to run.

The coordinator names a program and a step; it can send neither code nor an import path. It can name only methods marked
with `@step` that the agreed terms imply, in the order of the program's script (see `script`). Their values leave the
site only in a sum, unless the step declares otherwise.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar, overload

import numpy as np

from fedsvm.federation.arrays import FloatArray, Residues
from fedsvm.federation.channel.interface import Channel
from fedsvm.federation.errors import OrderRefused, StepRefused
from fedsvm.federation.site.answers import AnswerRecord
from fedsvm.federation.site.partition import Partition
from fedsvm.federation.site.rules import SiteRules
from fedsvm.federation.site.script import Script, any_order
from fedsvm.federation.site.terms import Terms

Method = TypeVar("Method", bound=Callable[..., Any])
Opens = Literal["sum", "value"]
"""The part of a step's value that may be opened: only the sum over sites, or each site's value too."""
Receiver = Literal["coordinator", "site", "either"]
"""The party that opens the sums of a step: the coordinator, a site, or either, depending on the round."""
_MARK = "_federated_step"


@dataclass(frozen=True)
class ArgumentRule:
    """The rule for an argument of a step.

    Parameters
    ----------
    kind : {"agreed", "checked", "chosen"}
        "agreed": it must equal the agreed setting of this name. "checked": the step compares it with data or results of
        the site. "chosen": the coordinator chooses it.
    bound : str, default ""
        For a chosen argument, the allowed values.
    gain : str, default ""
        For a chosen argument, what a lying coordinator gains by it.
    """

    kind: Literal["agreed", "checked", "chosen"]
    bound: str = ""
    gain: str = ""


AGREED, CHECKED = ArgumentRule("agreed"), ArgumentRule("checked")


def free(bound: str, gain: str) -> ArgumentRule:
    """Return the declaration of an argument that the coordinator chooses."""
    return ArgumentRule("chosen", bound, gain)


@dataclass(frozen=True)
class StepMark:
    """The declaration of a step; see `step` for the attributes. `told` is None if the step declares no arguments."""

    opens: Opens = "sum"
    bound: float | tuple[float, ...] | None = None
    remembered: bool = False
    receiver: Receiver = "coordinator"
    noisy: bool = False
    told: Mapping[str, ArgumentRule] | None = None
    shown: str = ""
    public: bool = False


@overload
def step(method: Method) -> Method: ...


@overload
def step(
    *,
    opens: Opens = "sum",
    bound: float | tuple[float, ...] | None = None,
    remembered: bool = False,
    receiver: Receiver = "coordinator",
    noisy: bool = False,
    told: Mapping[str, ArgumentRule] | None = None,
    shown: str = "",
    public: bool = False,
) -> Callable[[Method], Method]: ...


def step(
    method: Method | None = None,
    *,
    opens: Opens = "sum",
    bound: float | tuple[float, ...] | None = None,
    remembered: bool = False,
    receiver: Receiver = "coordinator",
    noisy: bool = False,
    told: Mapping[str, ArgumentRule] | None = None,
    shown: str = "",
    public: bool = False,
) -> Method | Callable[[Method], Method]:
    """Mark a method of a site program as one that the coordinator may name.

    Parameters
    ----------
    method : callable
        The method, if this is used as `@step`.
    opens : {"sum", "value"}, default "sum"
        How its value leaves the site: only in secure sums, or (`@step(opens="value")`) also gathered in the clear. A
        site refuses to show a value in the clear that is declared as "sum".
    bound : float or tuple of float, optional
        The only bound, or all bounds, that sums of its value may have, such as math.inf. By default each order has one,
        and a site whose value exceeds it refuses this and every later order. A coordinator that lowers its bounds one
        by one learns one value of each site, which lies between the last two bounds.
    remembered : bool, default False
        Whether the step stores public state. A site that joins late receives its order alone, from
        `Federation.run(step, remember=True)`. A site refuses to carry out any other step alone.
    receiver : {"coordinator", "site", "either"}, default "coordinator"
        The party that opens its sums. A site refuses an order by which the coordinator opens a site's sum.
    noisy : bool, default False
        Whether the step itself adds the noise that the agreed epsilon needs. A site whose policy sets `max_epsilon`
        puts values of no other step into a sum.
    told : mapping of str to ArgumentRule, optional
        The rule of each argument: `AGREED`, `CHECKED` or `free(bound, gain)`; see `ArgumentRule`. One entry may have
        several names, such as "w, b". A site refuses an order with an argument that is not declared, or with an agreed
        one that differs from its setting.
    shown : str, default ""
        A list of nouns: the values that a protocol inside the step opens to the coordinator.
    public : bool, default False
        Whether everybody may have its sums, such as the weights of a released model. If the agreed sum verifies the
        coordinator's result, the sites then open them too.
    """

    declared = None
    if told is not None:
        declared = {name: how for names, how in told.items() for name in names.split(", ")}

    def mark(marked: Method) -> Method:
        setattr(marked, _MARK, StepMark(opens, bound, remembered, receiver, noisy, declared, shown, public))
        return marked

    return mark if method is None else mark(method)


def mark_of(method: Callable[..., Any]) -> StepMark:
    """Return the declaration of a step."""
    mark: StepMark = getattr(method, _MARK)
    return mark


def step_methods(kind: type[SitePart | SiteProgram]) -> dict[str, Callable[..., Any]]:
    """Return the steps of a part, or of a program and its parts, by name."""
    kinds = (kind, *kind.part_types) if issubclass(kind, SiteProgram) else (kind,)
    methods = {name: getattr(each, name) for each in kinds for name in dir(each)}
    return {name: method for name, method in methods.items() if hasattr(method, _MARK)}


def steps_of(kind: type[SitePart | SiteProgram]) -> frozenset[str]:
    """Return the names of the steps of a part, or of a program and its parts."""
    return frozenset(step_methods(kind))


def open_steps(program: type[SiteProgram]) -> tuple[str, ...]:
    """Return the sorted names of the steps of a program whose value may be gathered in the clear."""
    return tuple(sorted(name for name, method in step_methods(program).items() if mark_of(method).opens == "value"))


def exact_steps(program: type[SiteProgram], script: Script) -> list[str]:
    """Return the steps of a script that give an exact value, which is not one that each site may show.

    The value is the return value of the step, or a value that a protocol inside it opens to the coordinator.
    """
    methods = step_methods(program)
    marks = {name: mark_of(methods[name]) for name in script.steps & methods.keys()}
    valued = (
        name
        for name, mark in marks.items()
        if mark.shown or methods[name].__annotations__.get("return") not in ("None", None)
    )
    return sorted(name for name in valued if not marks[name].noisy and marks[name].opens == "sum")


def script_of(program: type[SiteProgram], terms: Terms) -> Script:
    """Return the script of a program on these terms. Raise StepRefused if its method fails."""
    try:
        return program.script(terms)
    except Exception as error:
        where = f"{program.__module__}.{program.__qualname__}.script"
        raise StepRefused(f"{where} fails ({type(error).__name__}: {error}); fix this method.") from error


NO_TERMS = Terms("", {}, "", {}, 1)
"""The terms of a program outside of a site process, where nobody orders steps."""


class SitePart:
    """A group of steps of a site program, with the state that they share.

    A part creates its state in its constructor, which receives the program and the parts that it reads. No other object
    changes that state. Steps read the channel and the terms of the run from the program.
    """

    def work_ahead(self) -> None:
        """Do nothing, by default: see `SiteProgram.work_ahead`."""


PartTypes = tuple[type[SitePart], ...]
"""Classes of parts."""


class SiteProgram:
    """The half of an algorithm that runs where the data is: steps of its own, and parts.

    A part is an attribute of type `SitePart` that the constructor creates. `part_types` lists its class.

    Parameters
    ----------
    site : str
        The name of this site.
    partition : Partition
        The data of this site.
    settings : mapping
        Plain values of the run, with the `seed` of its experiments.

    Attributes
    ----------
    channel : Channel
        The channel of the round, for steps that run a protocol among the sites.
    terms : Terms
        The terms of the run, from which steps read settings.
    opened : FloatArray
        The last sum that this site received.
    charge_again : callable
        Charges the operator's privacy budget for one release more than the terms promise. A step calls it before it
        adds noise to that release. Raises OrderRefused beyond the budget.
    answers : AnswerRecord
        The noisy answers that the site keeps.
    min_cell : int
        Minimum number of this site's rows in a category that it opens.
    part_types : tuple of type
        The classes of the parts.
    libraries : tuple of str
        Modules that its steps import. The process from which sites are forked imports them once, for all of them.
    noisy_settings : str
        The settings with which each sum has the noise of the sites, for error messages; empty if there are none.
    is_replayable : bool
        True if its steps return the same values for the same parameters and the same received messages: none draws
        random numbers except through its channel.
    """

    channel: Channel
    terms: Terms = NO_TERMS
    opened: FloatArray
    part_types: ClassVar[PartTypes] = ()
    libraries: ClassVar[tuple[str, ...]] = ()
    noisy_settings: ClassVar[str] = ""
    is_replayable: ClassVar[bool] = True

    def __init__(self, site: str, partition: Partition, settings: Mapping[str, Any]) -> None:
        self.site = site
        self.partition = partition
        self.settings = settings
        self.charge_again: Callable[[], None] = lambda: None
        self.answers = AnswerRecord()
        self.min_cell = 0

    @classmethod
    def under_terms(
        cls,
        site: str,
        partition: Partition,
        settings: Mapping[str, Any],
        terms: Terms,
        rules: SiteRules,
        charge_again: Callable[[], None],
    ) -> Self:
        """Return the program of a site process, under the agreed terms and the rules of the site's operator."""
        program = cls(site, partition, settings)
        program.terms, program.charge_again = terms, charge_again
        program.answers, program.min_cell = AnswerRecord(rules.answers, rules.max_mu), rules.min_cell
        return program

    @classmethod
    def script(cls, terms: Terms) -> Script:
        """Return which steps a run on these terms may order, in which order and how often; here all in any order.

        A site refuses every other order. It derives the script by itself, from the terms that it agreed to.
        """
        return any_order(steps_of(cls))

    def check_agreed(self, **arguments: Any) -> None:
        """Raise OrderRefused for an argument of a step that differs from the agreed setting of this name."""
        for name, value in arguments.items():
            if (agreed := self.terms.settings.get(name, value)) != value:
                raise OrderRefused(f"{name} must be {json.dumps(agreed)}, as agreed, got {json.dumps(value)}")

    def check_arguments(self, step: str, mark: StepMark, arguments: Mapping[str, Any]) -> None:
        """Raise OrderRefused for an argument that the step does not declare, or an agreed one that differs."""
        if mark.told is None:
            return
        if undeclared := sorted(arguments.keys() - mark.told.keys()):
            raise OrderRefused(f"step {step!r} declares no argument {undeclared[0]!r}")
        self.check_agreed(**{name: value for name, value in arguments.items() if mark.told[name] is AGREED})

    def check_receiver(self, step: str, receiver: str, sites: Sequence[str]) -> None:
        """Raise OrderRefused for a sum that the agreed settings do not let its receiver open; by default for none."""

    def run_step(self, name: str, channel: Channel, arguments: Mapping[str, Any]) -> Any:
        """Run a step and return its value. channel: the channel of the round."""
        self.channel = channel
        return self.find_step(name)(**arguments)

    def take_opened(self, total: FloatArray) -> None:
        """Store a sum that this site received, for later steps."""
        self.opened = total

    def data_summary(self) -> tuple[int, Sequence[str]]:
        """Return the number of rows and the names of the columns for the site's own policy; by default unknown."""
        return 0, ()

    def work_ahead(self) -> None:
        """Compute values that the next order is likely to need, while no order waits.

        Errors are ignored: a step that needs the value raises them again.
        """
        for part in self.parts:
            part.work_ahead()

    @functools.cached_property
    def parts(self) -> list[SitePart]:
        """The parts, in the order in which the constructor created them."""
        return [part for part in vars(self).values() if isinstance(part, SitePart)]

    @functools.cached_property
    def _found(self) -> dict[str, Callable[..., Any]]:
        """Cache of `find_step`, by name."""
        return {}

    def random(self, purpose: str) -> np.random.Generator:
        """Return a new generator for experiments, seeded by scenario, site name and purpose.

        It is for splits and clusterings, never for masks or noise. A repeated step draws the same numbers.
        """
        return np.random.default_rng([int(self.settings["seed"]), *self.site.encode(), 0, *purpose.encode()])

    def find_step(self, name: str) -> Callable[..., Any]:
        """Return the method that the coordinator named. Raises LookupError unless it is marked as a step."""
        if (known := self._found.get(name)) is not None:
            return known
        for holder in (self, *self.parts) if name.isidentifier() else ():
            method: Callable[..., Any] | None = getattr(holder, name, None)
            if method is not None and hasattr(method, _MARK):
                self._found[name] = method
                return method
        raise LookupError(f"{type(self).__name__} has no step {name!r}; mark its method with @step")


class SumProtocol(Protocol):
    """A secure sum, as sites and coordinator use it. Every sum has a receiver: the coordinator, or one of the sites."""

    @property
    def name(self) -> str:
        """The name of the protocol in a scenario."""

    @property
    def min_sites(self) -> int:
        """The minimum number of sites. With fewer, the sum would hide nothing or cannot run."""

    @property
    def needs_pairwise_keys(self) -> bool:
        """True if each pair of sites shares secrets, so that sites need key pairs."""

    @property
    def options(self) -> Mapping[str, float]:
        """The options that every party must use."""

    @property
    def discloses(self) -> Literal["sum", "value"]:
        """The kind of value that the coordinator sees: the sum, or each site's own value."""

    @property
    def verifies(self) -> bool:
        """True if sites open public sums too, and compare them with the coordinator's."""

    @property
    def withstands(self) -> Callable[[int], int]:
        """Returns how many sites may collude with a lying coordinator, given the number of sites."""

    @property
    def min_remaining(self) -> Callable[[int], int]:
        """Returns how many sites must remain, given the number with which a run begins."""

    def isolating(self, sites: int) -> int:
        """Return the minimum number of sites that can learn another site's input together with the coordinator."""

    def sends_to(self, me: str, sites: tuple[str, ...]) -> tuple[str, ...]:
        """Return the parties that a site sends to when it contributes an input to a sum that the coordinator opens."""

    def encode(self, value: FloatArray, bound: float, sites: int) -> Residues:
        """Encode a site's input. Raises BoundExceeded for values that are not finite or beyond the bound."""

    def contribute(self, channel: Channel, residues: Residues, receiver: str) -> Residues | None:
        """Run a site's part with an input. Return the sum at the site that receives it."""

    def verify(self, channel: Channel, residues: Residues) -> Residues | None:
        """Open a public sum at this site too, and compare it with the coordinator's; None if that is not agreed."""

    def decode(self, residues: Residues, shape: Sequence[int], bound: float, sites: int) -> FloatArray:
        """Decode the sum over this number of sites."""

    def reveal(
        self, channel: Channel, shape: Sequence[int], bound: float, receiver: str, *, public: bool = False
    ) -> FloatArray | None:
        """Run the coordinator's part. Return the sum if the coordinator receives it. public: see `StepMark`."""


@dataclass(frozen=True)
class Installation:
    """The programs and secure sums of one installation.

    Parameters
    ----------
    programs : mapping of str to type
        The programs that sites can run, by name.
    sums : mapping of str to callable
        For each secure sum by name, the function that creates it, given its options.
    default_settings : callable, optional
        Returns the settings that agreed terms must have, with their defaults, given a program's name; None if any
        settings are allowed.
    warm_up : callable, optional
        Loads libraries before sites are forked, so that they share them.
    practice : callable, optional
        Runs the computations of most rounds, without sockets. The server calls it several times before the fork.
    """

    programs: Mapping[str, type[SiteProgram]]
    sums: Mapping[str, Callable[..., SumProtocol]]
    default_settings: Callable[[str], Mapping[str, Any] | None] = lambda program: None
    warm_up: Callable[[], None] = lambda: None
    practice: Callable[[], None] = lambda: None
