"""The release of the model: sums with shares of noise, at a site and at the coordinator."""

from __future__ import annotations

import hmac
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from fedsvm.algorithms.data.horizontal import HorizontalSite
from fedsvm.algorithms.data.partition import agreed_folds
from fedsvm.algorithms.features.mapped_rows import FeatureRows
from fedsvm.algorithms.hybrid_svm.minimizer import MAX_ITERATIONS, minimize
from fedsvm.algorithms.hybrid_svm.noise import noise_for_settings
from fedsvm.algorithms.hybrid_svm.settings import HybridSettings
from fedsvm.algorithms.optimization.solution import StoppingRule
from fedsvm.algorithms.privacy.accountant import PrivacyAccountant, Release
from fedsvm.algorithms.privacy.discrete_noise import gaussian_share, laplace_share
from fedsvm.algorithms.privacy.mechanisms import Noise
from fedsvm.federation.arrays import FloatArray
from fedsvm.federation.channel.generator import KeyedRandom
from fedsvm.federation.errors import OrderRefused, StepRefused
from fedsvm.federation.federation import Federation
from fedsvm.federation.site.program import AGREED, CHECKED, SitePart, free, step
from fedsvm.federation.site.script import Script, once, seq, stage
from fedsvm.federation.site.terms import Terms

_NOISE_ROUNDING = 1e-9
"""By how much of it the scale that two machines compute may differ."""


def release_script(terms: Terms) -> Script:
    """Return the script of `release_model`: sites draw noise or send the model, unless cuts already revealed it."""
    if terms.settings["mechanism"] in ("laplace", "gaussian"):
        return stage("noisy_part")
    seen = terms.settings["variant"] == "joint" and terms.settings["solver"] == "cutting-plane"
    return seq() if seen else once("own_part")


class ModelRelease(SitePart):
    """The models that a site trained, alone or with all others, and their release with its shares of the noise.

    With several classes, the models are concatenated.
    """

    def __init__(self, site: HorizontalSite, rows: FeatureRows) -> None:
        self._site, self._rows = site, rows
        self._forget()
        self._noise_key: bytes | None = None  # the shares of noise follow from it
        self._models = 0  # number trained with this key; only the last one counts
        self._summed: frozenset[str] = frozenset()  # what was put into sums with noise of this key
        self._releases = 0  # keys for which a model was released

    def begin(self, noise_key: bytes) -> None:
        """Forget the models of other features, and draw noise from this key."""
        self._forget()
        self._noise_key, self._models, self._summed = noise_key, 0, frozenset()

    def _forget(self) -> None:
        self._part: FloatArray = np.zeros(0)  # of a model that is a sum over sites
        self._whole: FloatArray | None = None  # the model that all sites trained together
        self._priors: FloatArray = np.zeros((0, 0))  # (K, m) of the last model, and the number of all rows
        self._rows_of_all = 0

    def take(self, part: FloatArray) -> None:
        """Take this site's part of the next model."""
        self._part = part
        self._models += 1

    def take_whole(self, model: FloatArray) -> None:
        """Take the next model, which all sites trained together; the first site of a sum adds it."""
        self._whole = model
        self._models += 1

    def check_problem(self, prior: FloatArray, price: float) -> None:
        """Raise OrderRefused for a prior where none was agreed on, or a price that is not C over a number of rows."""
        self._check_prior(prior)
        C = self._site.terms.settings.get("C", price)
        rows = round(C / price) if 0 < price < math.inf else 0
        if not math.isclose(price * rows, C):
            raise OrderRefused(f"price must be C = {C:g} over the number of rows, got {price:g}")
        self._priors, self._rows_of_all = np.broadcast_to(prior, (len(self._site.labels), prior.shape[-1])), rows

    def _check_prior(self, prior: FloatArray) -> None:
        """Raise OrderRefused for a prior where none was agreed on."""
        if prior.any():
            self._site.check_agreed(prior="public")

    @step(
        remembered=True,
        told={
            "prior": CHECKED,
            "C, tolerance": AGREED,
            "rows": free("a whole number", "a model on another scale, with the noise of that scale"),
        },
    )
    def train_alone(self, prior: FloatArray, C: float, tolerance: float, rows: int) -> None:
        """Compute this site's own minimizer, weighted by its share of all rows. Raises StepRefused if it is not
        reached."""
        self._check_prior(prior)
        own, priors = len(self._rows.features), np.atleast_2d(prior)
        self._priors, self._rows_of_all = priors, rows
        part = np.zeros(prior.size)
        if own:
            stopping, models = StoppingRule(tolerance, MAX_ITERATIONS), []
            for labels, of_class in zip(self._site.labels, priors, strict=True):
                solution = minimize(self._rows.features, labels, of_class, C / own, stopping)
                if not solution.converged:
                    raise StepRefused(f"training did not reach tolerance {tolerance:g}; raise algorithm.tolerance")
                models.append(own / rows * (of_class + solution.w))
            part = np.concatenate(models)
        self.take(part)

    @step(
        bound=math.inf,
        told={
            "joint": CHECKED,
        },
    )
    def own_part(self, joint: bool) -> FloatArray:
        """Return the (K 2 D,) this site's part of the model, without noise; of a joint one, all of it at the first
        site.

        Raises StepRefused where that site was restarted, and has lost it, OrderRefused where it is not as agreed.
        """
        self._site.check_agreed(variant="joint" if joint else "one-shot")
        if not joint:
            return self._part
        if self._site.channel.sites[0] != self._site.site:
            return np.zeros(self._size)
        if self._whole is None:
            raise StepRefused("the site that was to release the model lost it when it was restarted; run again")
        return self._whole

    @property
    def _size(self) -> int:
        """Weights of all models."""
        return int(self._rows.features.shape[1] * len(self._site.labels))

    @step(
        bound=math.inf,
        noisy=True,
        told={
            "release": free("a whole number", "one more release, which is charged"),
            "lattice, mechanism, steps, shares, joint": CHECKED,
            "with_model": free("true or false", "noise without a model"),
        },
    )
    def noisy_part(
        self,
        release: int,
        lattice: float,
        mechanism: str,
        steps: int,
        shares: int,
        with_model: bool,
        joint: bool,
    ) -> FloatArray:
        """Return the (K 2 D,) share of the noise, added to this site's part of the model if requested, on the lattice.

        A release has one share, however often it is summed for it, and by whatever process of this site: who saw a sum
        that got lost, as the first site of a ring does, sees the same again. Of anything else, be it over other sites,
        on another lattice or of another model, there is another share: two sums with the same differ by no noise. The
        run agreed on one release for a set of features, and on as many sets as it trains models; each release beyond
        that is charged, whatever the coordinator says of it.

        Raises OrderRefused for a model with less noise than the agreed epsilon needs; see `_check_noise`.
        """
        self._site.check_agreed(mechanism=mechanism, variant="joint" if joint else "one-shot")
        if self._noise_key is None:
            raise StepRefused("it has no features, and no key for its noise yet")
        asked = [release, self._site.channel.sites, lattice, mechanism, steps, shares, with_model, joint, self._models]
        share_of, size = json.dumps(asked), self._size
        if with_model:
            self._check_noise(mechanism, lattice, steps, shares)
        part = np.rint(self.own_part(joint) / lattice) if with_model else np.zeros(size)
        if with_model and share_of not in self._summed:
            if self._summed or self._releases >= self._agreed_models:
                self._site.charge_again()
            self._releases += not self._summed
            self._summed |= {share_of}
        source = KeyedRandom(hmac.digest(self._noise_key, share_of.encode(), "sha256"))
        share = (
            gaussian_share(Fraction(steps) ** 2, shares, size, source)
            if mechanism == "gaussian"
            else laplace_share(steps, shares, size, source)
        )
        return np.asarray((part + share) * lattice)

    def _check_noise(self, mechanism: str, lattice: float, steps: int, shares: int) -> None:
        """Raise OrderRefused for less noise than the epsilon that this site charges needs, for the last model.

        One row moves the model by 2C/n, for the n that it was trained with, whatever the coordinator says of n. All of
        the noise must be there without the share of one site, by the fewest sites that the run goes on with.
        """
        charged = self._site.terms.epsilon
        if charged is None:  # of a run that promises its sites nothing
            return
        settings = HybridSettings(**self._site.terms.settings)
        if settings.mechanism != mechanism or settings.epsilon * self._agreed_models > charged * (1 + _NOISE_ROUNDING):
            raise OrderRefused("the agreed settings must say the mechanism, and the epsilon that this site charges")
        most = max(1, min(len(self._site.channel.sites), self._site.terms.min_sites) - 1)
        if type(shares) is not int or not 1 <= shares <= most:
            raise OrderRefused(f"shares must be from 1 to {most}, so that one site can be lost, got {shares!r}")
        if self._rows_of_all < max(1, len(self._rows.features)):
            raise OrderRefused(
                f"rows must be those of all sites, and {len(self._rows.features)} or more, as many as here"
            )
        needed = noise_for_settings(settings, self._priors, self._rows_of_all, shares)
        if needed is None or not math.isclose(lattice, needed.step) or steps < needed.steps * (1 - _NOISE_ROUNDING):
            scale = needed.scale if needed else math.inf
            raise OrderRefused(f"noise must have the scale {scale:g} that epsilon needs, got {steps * lattice:g}")

    @property
    def _agreed_models(self) -> int:
        """Return the number of models of the run: one for each fold."""
        return max(1, agreed_folds(self._site.terms.reading))


def release_model(
    federation: Federation,
    settings: HybridSettings,
    weights: FloatArray | None,
    noise: Noise | None,
    accountant: PrivacyAccountant,
    size: int,
) -> FloatArray:
    """Return the model with its noise.

    Some site may have seen a sum that got lost, and summed again it shows nothing new: sites keep their shares of the
    noise. Where sites left or joined meanwhile, models and shares are others, and it is one more release.
    """
    shape = (size,)
    joint = settings.variant == "joint"
    if noise is None or not noise.is_divisible:
        exact = federation.sum("own_part", shape=shape, bound=math.inf, joint=joint) if weights is None else weights
        if noise is None:
            return exact
        released: FloatArray = federation.journaled_random("the released weights", lambda: noise.released(exact))
        return released
    terms: dict[str, Any] = {"lattice": noise.step, "mechanism": noise.privacy.mechanism, "steps": noise.steps}
    terms |= {"shares": noise.shares, "with_model": weights is None, "joint": joint}

    def once_more() -> dict[str, Any]:
        if weights is None:  # else the sum is of noise alone
            accountant.spend(
                replace(accountant.releases[-1], what="weights of the model, summed again over other sites"),
                federation.journaled_random,
            )
        return {"release": len(accountant.releases)}

    terms |= {"release": len(accountant.releases)}
    noisy: FloatArray = federation.sum(
        "noisy_part", shape=shape, bound=math.inf, on_membership_change=once_more, **terms
    )
    return noisy if weights is None else noise.on_lattice(weights) + noisy


def privacy_statement(settings: HybridSettings, noise: Noise, federation: Federation) -> Release:
    alone = noise.share_epsilon if settings.variant == "one-shot" and noise.is_divisible else None
    return Release(
        what="weights of the model",
        epsilon=noise.privacy.epsilon,
        delta=noise.delta,
        mechanism=noise.privacy.mechanism,
        sensitivity=noise.sensitivity,
        noise_scale=noise.scale,
        protects_against=("everyone who gets the model", *_protection(settings, noise, federation)),
        drawn_by=noise.drawn_by,
        lattice=noise.step,
        share_epsilon=alone,
    )


def _protection(settings: HybridSettings, noise: Noise, federation: Federation) -> Iterator[str]:
    """Yield from whom, besides recipients of the model, the noise protects private rows, and how far.

    Who knows the shares of some sites has less of the noise against it, and who isolates a site's part has only that
    site's share.
    """
    if settings.variant == "joint" and settings.solver == "cutting-plane":
        yield "not the coordinator and the sites, which saw it trained"
    elif settings.variant == "joint":
        yield "not the sites, which saw it trained, nor the coordinator, which saw figures of every step"
    elif not noise.is_divisible:
        yield "not the coordinator, which saw it without noise"
    elif federation.shows_inputs and noise.shares > 1:
        yield f"the coordinator, which saw each site's part with its share of the noise alone, to {_alone(noise)} only"
    else:
        yield "the coordinator, and every site but the row's own"
        spared = federation.membership.policy.min_sites - noise.shares
        if noise.shares > 1:
            several = max(1, min(federation.sum_protocol.isolating(len(federation.sites)), spared + 1))
            who = "another site alone" if several == 1 else f"{several} sites or more together"
            yield f"{who}, which may be left with one site's share of the noise, to {_alone(noise)} only"


def _alone(noise: Noise) -> str:
    return f"epsilon {noise.share_epsilon:.3g}"
