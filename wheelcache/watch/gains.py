"""The changes of the size and the policy that would help a cache, and the gain that each sample of requests promises.

A sample has some hundred keys, so its numbers differ from one period to the next, also on a steady stream of requests.
If advice followed the latest sample alone, it would come and go. Therefore a worker publishes ``steadier`` samples: the
most certain one, until a later one contradicts it.
"""

from __future__ import annotations

from typing import Final

from wheelcache.engine.stats import CURVE_SIZES, TINY_LFU, Sample

LEAST_GAIN: Final = 0.03
"""The gain of hit ratio for which more memory is advised."""

LEAST_GAIN_OF_POLICY: Final = 0.02
"""The gain of hit ratio for which the other policy is advised."""

DISAGREEMENT: Final = 0.02
"""The difference of estimates from which there is no advice."""

LEAST_EVICTIONS: Final = 0.1
"""The evictions per miss from which the size can be the reason for the misses."""

FACTORS: Final = {CURVE_SIZES.index(factor): factor for factor in (2, 4)}
"""The factors by which advice lets a cache grow, by their arms of the sample."""

ARMS: Final = (*FACTORS, TINY_LFU)
"""The arms of the sample that advice is about."""


def gains(sample: Sample) -> dict[int, float]:
    """Return the gains of hit ratio that can be promised, by the arms of the sample that clearly help."""
    found: dict[int, float] = {}
    for arm in _possible(sample):
        gain = sample.gain(arm) - sample.error(arm) / 2
        if sample.error(arm) < DISAGREEMENT and gain >= _least(arm, found) and sample.gain(arm) > sample.chance(arm):
            found[arm] = gain
    return found


def in_doubt(sample: Sample) -> dict[int, tuple[float, float]]:
    """Return the least and the greatest gain to expect of the arms that may help, but do not clearly help."""
    certain = gains(sample)
    found = {}
    for arm in _possible(sample):
        gain, doubt = sample.gain(arm), max(sample.error(arm) / 2, sample.chance(arm))
        if arm not in certain and doubt and gain + sample.error(arm) / 2 >= _least(arm, certain):
            found[arm] = (max(gain - doubt, 0.0), gain + doubt)
    return found


def steadier(before: Sample, latest: Sample) -> Sample:
    """Return the sample to publish after ``before`` was published, and ``latest`` was measured."""
    if not before or not latest or _contradicts(latest, before):
        return latest
    advised, now = gains(before).keys(), gains(latest).keys()
    if now > advised or (now == advised and _doubt(latest) < _doubt(before)):
        return latest
    return before


def _contradicts(latest: Sample, before: Sample) -> bool:
    """Return whether the requests have changed, or a gain that was promised is out of reach."""
    return abs(latest.hit_ratio - before.hit_ratio) >= DISAGREEMENT or any(
        latest.gain(arm) + latest.error(arm) < _least(arm, {}) for arm in gains(before)
    )


def _doubt(sample: Sample) -> float:
    return max(map(sample.error, ARMS))


def _possible(sample: Sample) -> tuple[int, ...]:
    """Return the arms that advice may be about: without evictions, a larger cache is none."""
    return ARMS if sample.evicted_share >= LEAST_EVICTIONS else (TINY_LFU,)


def _least(arm: int, found: dict[int, float]) -> float:
    """Return the gain from which an arm helps. A larger factor must gain as much again as a smaller one."""
    if arm == TINY_LFU:
        return LEAST_GAIN_OF_POLICY
    return LEAST_GAIN + max((gain for other, gain in found.items() if other < arm), default=0.0)
