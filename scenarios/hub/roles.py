"""The roles of users: who can create tasks, and who sees tasks, results and models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedsvm.scenarios.hub.accounts import RequestRefused, address
from fedsvm.scenarios.hub.database import Task
from fedsvm.scenarios.schema.errors import ScenarioError

EVERYBODY, CREATOR = "participants", "creator"
"""The users who see the results of a task, as its creator chose."""


@dataclass(frozen=True)
class Roles:
    """The administrators and the makers of a hub.

    Parameters
    ----------
    admins : frozenset of str
        Addresses that see and cancel all tasks, and can create some.
    makers : frozenset of str
        Addresses that can create tasks, and domains such as "@clinic.example". Empty for every user.
    """

    admins: frozenset[str] = frozenset()
    makers: frozenset[str] = frozenset()

    @classmethod
    def read(cls, admins: Sequence[str], makers: Sequence[str]) -> Roles:
        """Return the roles that options name. Raises ScenarioError."""
        domains = [each for each in makers if each.startswith("@")]
        try:
            named = [frozenset(map(address, each)) for each in (admins, [x for x in makers if x not in domains])]
            read = [address(f"any{each}").removeprefix("any") for each in domains]
        except RequestRefused as error:
            raise ScenarioError(
                [f"--admin, --maker: {error} For --maker it can be a domain such as @example.org."]
            ) from error
        return cls(named[0], named[1].union(read))

    def is_admin(self, email: str) -> bool:
        """Return whether a user is an administrator."""
        return email in self.admins

    def can_create(self, email: str) -> bool:
        """Return whether a user can create tasks."""
        domain = f"@{email.rpartition('@')[2]}"
        return not self.makers or self.is_admin(email) or not self.makers.isdisjoint((email, domain))

    def require_maker(self, email: str) -> None:
        """Raise Refused for a user who cannot create tasks."""
        if not self.can_create(email):
            raise RequestRefused(f"{email} cannot create tasks on this hub; ask its operator.")

    def sees_task(self, email: str, task: Task) -> bool:
        """Return whether a user sees a task: its creator, those who were invited, and administrators."""
        return self.is_admin(email) or email in (task.creator, *(each.email for each in task.participants))

    def manages(self, email: str, task: Task) -> bool:
        """Return whether a user can cancel a task and sees its results: its creator, and administrators."""
        return self.is_admin(email) or email == task.creator

    def sees_results(self, email: str, task: Task) -> bool:
        """Return whether a user sees the results and the model of a task."""
        took_part = any(each.email == email and each.state == "joined" for each in task.participants)
        return self.manages(email, task) or (took_part and task.results_to == EVERYBODY)
