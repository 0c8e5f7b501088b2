"""Brokers that the tests of this folder share."""

from __future__ import annotations

from .producing_sites import penstock_site, producing_sites, proxied, site  # noqa: F401
