"""Advice for the operators of a site: changes of the options that would clearly help, with the effect to expect.

``advise`` is a function of the figures of the workers. It promises nothing that the figures do not show: neither before
a worker has had 20 requests per entry without a switch of its policy, nor if the halves of the sample, or the last
three windows, disagree. It then says what may help, with the range of the effect. It never promises a result for a
smaller cache. The thresholds are those of ``gains``, which also keeps advice from coming and going. Advice about keys
promises nothing: see ``key_advice``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from wheelcache.core.contract import LEAST_CURVE
from wheelcache.engine.stats import CURVE_SIZES
from wheelcache.watch.figures import CacheFigures
from wheelcache.watch.gains import FACTORS, LEAST_EVICTIONS, gains, in_doubt
from wheelcache.watch.key_advice import on_keys

MOSTLY_EMPTY: Final = 0.5
"""The share of the limit of entries below which the limit is called too high."""


UNCERTAIN: Final = "not certain yet"
"""The first words of advice that promises nothing yet."""


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
    ratio = sample.hit_ratio
    for arm, gain in gains(sample).items():
        if arm in FACTORS or not figures.is_adaptive:
            change = _options(figures, arm)
            text = f"{_words(figures, arm)} would raise its hit ratio from {ratio:.0%} to {ratio + gain:.0%}."
            yield Advice(figures.name, text, change, ratio, ratio + gain)
    for arm, (least, most) in in_doubt(sample).items():
        if arm in FACTORS or not figures.is_adaptive:
            text = (
                f"{UNCERTAIN}: {_words(figures, arm)} would change its hit ratio from {ratio:.0%} to a value from "
                f"{ratio + least:.0%} to {min(ratio + most, 1.0):.0%}."
            )
            yield Advice(figures.name, text, {})


def _options(figures: CacheFigures, arm: int) -> dict[str, Any]:
    """Return the new values of options for an arm of the sample."""
    if arm not in FACTORS:
        return {"policy": "adaptive"}
    change = {"max_entries": FACTORS[arm] * figures.most_entries}
    if figures.max_weight:
        change["max_weight"] = FACTORS[arm] * figures.max_weight // figures.workers
    return change


def _words(figures: CacheFigures, arm: int) -> str:
    """Return the words for the change that an arm of the sample stands for."""
    if arm not in FACTORS:
        return 'policy="adaptive"'
    change = _options(figures, arm)
    limits = f"{change['max_entries']:,} entries"
    if weight := change.get("max_weight"):
        limits += f" and {weight:,} bytes" if figures.weighs_bytes else f" and a weight of {weight:,}"
    factor = {2: "twice", 4: "four times"}[FACTORS[arm]]
    return f"{factor} its limit, {limits} in each worker{_memory(figures, FACTORS[arm])},"


def _is_uniform(figures: CacheFigures) -> bool:
    """Return whether every worker has one cache of this name, with the same limit. During a change of the size, the
    sums are about caches of different sizes."""
    return figures.max_entries == figures.most_entries * figures.workers


def _memory(figures: CacheFigures, factor: int) -> str:
    if not figures.memory:
        return ""
    more = (factor - 1) * figures.memory / figures.workers / 2**20
    return f" with about {more:,.1f} MiB more" if more < 10 else f" with about {more:,.0f} MiB more"


def silence(figures: CacheFigures) -> str:
    """Return the sentence for a cache without advice."""
    if figures.is_shared:
        return "its entries are in a file that all workers share, and only caches in memory are measured."
    if not figures.max_entries:
        return "it has no limit of entries, so there is nothing to compare."
    if figures.stats.requests and not figures.stats.evictions:
        return (
            "nothing was evicted since the start or the last reset, so all of the "
            f"{figures.stats.requests:,} look-ups since then would have had the same result."
        )
    if not _is_uniform(figures):
        return "its limit of entries is not the same in every worker, or a worker has several caches of this name."
    if figures.stats.sample:
        return "neither a larger size nor another policy would raise its hit ratio by 3 points."
    if figures.cores == ("python",):
        return "its workers run the core in Python, and only the compiled core measures other sizes and policies."
    if figures.most_entries < LEAST_CURVE:
        return f"caches with a limit of less than {LEAST_CURVE:,} entries are not measured."
    return f"no worker has had {20 * figures.most_entries:,} requests yet, or the policy has just switched."


def curve(figures: CacheFigures) -> dict[str, Any]:
    """Return the hit ratio for each of ``CURVE_SIZES``, with the difference that the parts of the sample have, the
    limit of entries of a worker, and the advice about size and policy: its ``kind`` ("change", "uncertain", "none" or
    "unknown") and its ``text``."""
    sample, given = figures.stats.sample, list(_on_options(figures))
    certain = [each for each in given if not each.text.startswith(UNCERTAIN)]
    is_known = bool(sample) or (figures.stats.requests > 0 and not figures.stats.evictions)
    kind = "change" if certain else "uncertain" if given else "none" if is_known else "unknown"
    text = " ".join(_sentence(each.text) for each in certain or given)
    if not given:
        text = f"{'No change would help' if is_known else 'Not measured'}: {silence(figures)}"
    return {
        "points": [
            {"size": size, "hit_ratio": max(sample.hit_ratio + sample.gain(arm), 0.0), "error": sample.error(arm)}
            for arm, size in enumerate(CURVE_SIZES)
            if sample
        ],
        "entries": figures.most_entries or None,
        "advice": {"kind": kind, "text": text},
    }


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"
