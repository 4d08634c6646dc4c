"""The query of a request as the application and the key of its page see it: without ignored parameters, and sorted.

The application does not see ignored parameters either. Otherwise, a link in the stored page could contain the value
that one visitor sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import unquote

from wheelcache import options
from wheelcache.http_cache.keys import LONGEST_URL

TRACKING: Final = (
    # Campaigns: Google Analytics, Matomo and its predecessor Piwik, HubSpot.
    *("utm_*", "mtm_*", "matomo_*", "pk_campaign", "pk_kwd", "pk_keyword", "piwik_*", "hsa_*"),
    # Clicks: Google, Facebook, Instagram, Microsoft, X, TikTok, LinkedIn, Pinterest, Reddit, Snapchat, Yandex.
    *("gclid", "gclsrc", "dclid", "gbraid", "wbraid", "gad_source", "gad_campaignid", "srsltid", "fbclid", "igshid"),
    *("msclkid", "twclid", "ttclid", "li_fat_id", "epik", "rdt_cid", "ScCid", "yclid", "ysclid"),
    # The same visitor on another domain.
    *("_ga", "_gl", "_hsenc", "_hsmi"),
    # Mailings: Mailchimp, Klaviyo, Marketo, Dotdigital, Bronto, Vero.
    *("mc_cid", "mc_eid", "_ke", "_kx", "mkt_tok", "dm_i", "_bta_tid", "_bta_c", "vero_id"),
    # Advertising networks: Adobe, Commission Junction, Impact, Zanox.
    *("ef_id", "s_kwcid", "cjevent", "irclickid", "zanpid"),
)
"""Parameters that analytics and advertising services add to links, and that only scripts in the browser read."""


_ENCODED: Final = "[^=&%+]*[%+]"
"""Matches the name of a parameter if it must be decoded."""


class QueryRules:
    """Normalizes queries.

    A query is text with one character for each byte, as in WSGI. ``normalized`` changes no text of the parameters that
    it keeps, and changes nothing in a query that it has returned.

    Args:
        ignore: the decoded names of ignored parameters; ``utm_*`` is a prefix.
        sort: whether parameters are sorted by their decoded names. Those with the same name keep their order.

    Raises:
        TypeError, ValueError: if ``ignore_query`` or ``sort_query``, as the options are called, is invalid.
    """

    def __init__(self, ignore: Iterable[str] = (), *, sort: bool = False) -> None:
        names = _checked(ignore)
        self._names = frozenset(name for name in names if not name.endswith("*"))
        self._prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
        self._sorts = options.flag("sort_query", sort)
        candidates = [*map(re.escape, self._prefixes), *(f"{re.escape(name)}(?![^=&])" for name in self._names)]
        # Most queries have no ignored parameter, and this finds it out in half of the time.
        self._may_have_ignored = re.compile(f"&(?:{'|'.join([*candidates, _ENCODED] if names else ['(?!)'])})").search

    def normalized(self, query: str) -> str:
        """Return the query that the application and the key see."""
        if len(query) > LONGEST_URL:
            # The request bypasses the cache.
            return query
        may_have_ignored = query and self._may_have_ignored("&" + query)
        if not (may_have_ignored or (self._sorts and "&" in query)):
            return query
        parameters = query.split("&")
        if may_have_ignored:
            parameters = [each for each in parameters if not self._is_ignored(each)]
        if self._sorts:
            parameters.sort(key=_name)
        return "&".join(parameters)

    def _is_ignored(self, parameter: str) -> bool:
        name = _name(parameter)
        return name in self._names or name.startswith(self._prefixes)


def _name(parameter: str) -> str:
    """Return the decoded name of a parameter."""
    name = parameter.partition("=")[0]
    return unquote(name.replace("+", " "), "latin-1") if "%" in name or "+" in name else name


def _checked(given: Any) -> list[str]:
    """Check ``ignore_query``. Return the names as they appear in decoded queries, one character for each byte."""
    accepted = 'a list of parameter names, such as "ref" or "utm_*" (a star only at the end, after a prefix)'
    names = options.names("ignore_query", given, accepted, lambda name: name.rstrip("*") and "*" not in name[:-1])
    return [name.encode().decode("latin-1") for name in names]
