"""Advice for the operators of a site: changes of the options that would clearly help, with the effect to expect.

``advise`` is a function of the figures of the workers. It promises nothing that the figures do not show: neither before
a worker has had 20 requests per entry without a switch of its policy, nor if the halves of the sample, or the last
three windows, disagree. It never promises a result for a smaller cache. Advice about keys promises nothing: see
``key_advice``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from wheelcache.core.contract import LEAST_CURVE, LEAST_CURVE_IN_PYTHON
from wheelcache.observability.figures import CacheFigures
from wheelcache.observability.key_advice import on_keys
from wheelcache.stats import CURVE_SIZES, TINY_LFU, Sample

LEAST_GAIN: Final = 0.03
"""The gain of hit ratio for which more memory is advised."""

LEAST_GAIN_OF_POLICY: Final = 0.02
"""The gain of hit ratio for which the other policy is advised."""

DISAGREEMENT: Final = 0.02
"""The difference of estimates from which there is no advice."""

LEAST_EVICTIONS: Final = 0.1
"""The evictions per miss from which the size can be the reason for the misses."""

MOSTLY_EMPTY: Final = 0.5
"""The share of the limit of entries below which the limit is called too high."""

FACTORS: Final = (2, 4)
"""The factors by which advice lets a cache grow."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A change that would help a cache.

    Attributes:
        cache: the name of the cache.
        text: the sentence that follows the name.
        change: the new values of options, by their names in the engine; empty if there is nothing to promise.
        hit_ratio, promised: the measured hit ratio, and the one to expect; None without a promise.
    """

    cache: str
    text: str
    change: Mapping[str, Any]
    hit_ratio: float | None = None
    promised: float | None = None

    def __str__(self) -> str:
        return f"Cache {self.cache!r}: {self.text}"


def advise(caches: Iterable[CacheFigures]) -> list[Advice]:
    """Return the advice for the caches of a site, in the order of the caches."""
    return [advice for each in caches for advice in _of_cache(each)]


def _of_cache(figures: CacheFigures) -> Iterable[Advice]:
    yield from _on_options(figures)
    for text in on_keys(figures):
        yield Advice(figures.name, text, {})


def _on_options(figures: CacheFigures) -> Iterable[Advice]:
    sample = figures.stats.sample
    limit = figures.most_entries
    if not sample or not limit or not _is_uniform(figures):
        return
    # Otherwise the weight is the limit that counts.
    if figures.peak < MOSTLY_EMPTY * limit and sample.evicted_share < LEAST_EVICTIONS:
        held = f"it never held more than {figures.peak / limit:.0%} of its limit of {limit:,} entries"
        yield Advice(figures.name, f"{held}.", {})
        return
    yield from _growth(figures, sample, limit)
    gain = _gain(sample, TINY_LFU)
    if gain >= LEAST_GAIN_OF_POLICY and sample.is_certain(TINY_LFU):
        promised = sample.hit_ratio + gain
        text = f'policy="adaptive" would raise its hit ratio from {sample.hit_ratio:.0%} to {promised:.0%}.'
        yield Advice(figures.name, text, {"policy": "adaptive"}, sample.hit_ratio, promised)


def _growth(figures: CacheFigures, sample: Sample, limit: int) -> Iterable[Advice]:
    """Yield the advice to grow. The larger factor must gain as much again."""
    if sample.evicted_share < LEAST_EVICTIONS:
        return
    gained = 0.0
    for factor in FACTORS:
        gain = _gain(sample, CURVE_SIZES.index(factor))
        if gain < gained + LEAST_GAIN:
            continue
        gained, promised = gain, sample.hit_ratio + gain
        change = {"max_entries": factor * limit}
        limits = f"{factor * limit:,} entries"
        if figures.max_weight:
            change["max_weight"] = weight = factor * figures.max_weight // figures.workers
            limits += f" and {weight:,} bytes" if figures.weighs_bytes else f" and a weight of {weight:,}"
        text = (
            f"{_words(factor)} its limit, {limits} in each worker{_memory(figures, factor)}, would "
            f"raise its hit ratio from {sample.hit_ratio:.0%} to {promised:.0%}."
        )
        yield Advice(figures.name, text, change, sample.hit_ratio, promised)


def _is_uniform(figures: CacheFigures) -> bool:
    """Return whether every worker has one cache of this name, with the same limit. During a change of the size, the
    sums are about caches of different sizes."""
    return figures.max_entries == figures.most_entries * figures.workers


def _gain(sample: Sample, arm: int) -> float:
    """Return the gain of an arm that can be promised; 0.0 if it is in doubt."""
    error = sample.error(arm)
    return sample.gain(arm) - error / 2 if error < DISAGREEMENT else 0.0


def _words(factor: int) -> str:
    return {2: "twice", 4: "four times"}[factor]


def _memory(figures: CacheFigures, factor: int) -> str:
    if not figures.memory:
        return ""
    more = (factor - 1) * figures.memory / figures.workers / 2**20
    return f" with about {more:,.1f} MiB more" if more < 10 else f" with about {more:,.0f} MiB more"


def silence(figures: CacheFigures) -> str:
    """Return the sentence for a cache without advice."""
    if not figures.max_entries:
        return "it has no limit of entries, so there is nothing to compare."
    if not _is_uniform(figures):
        return "its limit of entries is not the same in every worker, or a worker has several caches of this name."
    if figures.stats.sample:
        return "no change of the size or the policy would clearly help."
    is_python = figures.cores == ("python",)
    least = LEAST_CURVE_IN_PYTHON if is_python else LEAST_CURVE
    if figures.most_entries < least:
        core = " of the core in Python" if is_python else ""
        return f"caches{core} with a limit of less than {least:,} entries are not measured."
    return f"no worker has had {20 * figures.most_entries:,} requests yet, or the policy has just switched."


def curve(sample: Sample) -> list[dict[str, float]]:
    """Return the hit ratio for each of ``CURVE_SIZES``, with the difference that the parts of the sample have."""
    return [
        {"size": size, "hit_ratio": max(sample.hit_ratio + sample.gain(arm), 0.0), "error": sample.error(arm)}
        for arm, size in enumerate(CURVE_SIZES)
        if sample
    ]
