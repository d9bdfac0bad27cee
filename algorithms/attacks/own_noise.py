"""The noise in the objective that the members of a coalition drew themselves, and the rest, which they face.

Each site knows its own draw (`optimization.objective_noise`), from the random numbers that it drew when it posed the
problem and the size that it put into a sum. It takes the draw off the weights and off the right-hand sides.

A site that poses the same problem again keeps its noise (`federation.site.answers`), but draws new random numbers. Its
record then does not show the kept noise, and these numbers give another one: an attack finds less than the site would.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsvm.algorithms.attacks.attack import BinaryTask
from fedsvm.algorithms.attacks.epochs import Epoch
from fedsvm.algorithms.optimization.objective_noise import repeat_draws, share_faced
from fedsvm.federation.arrays import FloatArray, Residues
from fedsvm.federation.channel.transcript import DREW
from fedsvm.protocols.common_seed import SHAPE


@dataclass(frozen=True)
class OwnNoise:
    """The sum of the members' draws, (m,), and the number of members that drew.

    key (1, 4): of the secrets of a member's rows, if it is the only one.
    """

    draw: FloatArray
    members: int
    key: Residues | None = None

    def share_left(self, sites: int | None) -> float:
        """Return the size of the noise of all other sites, of so many, as a share of the agreed size.

        None: the number of sites is unknown, and the noise is taken to have the agreed size.
        """
        return 1.0 if sites is None else share_faced(sites, self.members)


def own_noise(epoch: Epoch, posed: BinaryTask, width: int) -> OwnNoise:
    """Return the noise that members of a coalition drew for the last training of a problem with m = `width` weights."""
    begun = max((number for number, each in enumerate(epoch.rounds) if each.step == "begin_path"), default=0)
    seeds, deviations, problems = dict[str, Residues](), dict[str, float](), posed.number + 1
    for each in epoch.rounds[begun:]:
        if each.step == "share_path":
            for site, lines in each.entries.items():
                drawn = [line.array for line in lines if line.what == DREW and line.array.shape == SHAPE]
                if drawn:
                    seeds[site] = drawn[-1]
        elif each.step == "noise_sizes":
            deviations |= {site: float(sizes[1]) ** 0.5 for site, sizes in each.inputs.items() if sizes[1] > 0}
        elif each.step in ("newton", "blind_newton"):
            problems = max(problems, int(np.max(each.parameters["problems"])) + 1)
    known = [site for site in seeds if site in deviations]
    repeated = [repeat_draws(seeds[site], deviations[site], problems, width) for site in known]
    draws = [drawn[posed.number] for drawn, _ in repeated]
    key = repeated[0][1] if len(repeated) == 1 else None
    return OwnNoise(np.sum([np.zeros(width), *draws], axis=0), len(draws), key)
