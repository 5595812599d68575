"""Errors of the fleet."""

from fallback_tier.errors import FallbackError, InputError


class FleetStoreError(FallbackError):
    """The list of campaigns can't be read or written."""

    code = "fleet_store"


class OrderError(InputError):
    """An order that can't be carried out."""

    code = "not_served"


class CampaignError(InputError):
    """A campaign's file, or a request about a campaign, is not valid."""

    code = "campaign"
