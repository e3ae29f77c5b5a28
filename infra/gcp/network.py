"""Whether the VMs of one run may reach each other: the firewall rules of the network `default`."""

from __future__ import annotations

from ipaddress import IPv4Network, ip_network
from typing import Any

from infra.gcp.clients import GoogleClients
from infra.gcp.errors import translated

_NETWORK = "/global/networks/default"
_ADDRESSES = IPv4Network("10.128.0.0/9")
"""What an auto mode network gives its VMs, and what `default-allow-internal` allows
(docs.cloud.google.com/firewall/docs/firewalls#more_rules_default_vpc)."""
_ALL_PORTS = ({"0-65535"}, {"1-65535"}, set[str]())


def internal_traffic(clients: GoogleClients) -> bool:
    """Whether one rule allows TCP on every port between all VMs of the network. Raises as every call does."""
    with translated("list the firewall rules"):
        rules = clients.firewalls.list(project=clients.project, **clients.repeatable)
        return any(allows(rule) for rule in rules)


def allows(rule: Any) -> bool:
    """Whether this rule does."""
    is_for_all = rule.network.endswith(_NETWORK) and not (rule.target_tags or rule.target_service_accounts)
    if not is_for_all or rule.disabled or rule.direction != "INGRESS":
        return False
    sources = [ip_network(text) for text in rule.source_ranges]
    from_all = any(isinstance(source, IPv4Network) and source.supernet_of(_ADDRESSES) for source in sources)
    return from_all and any(
        allowed.I_p_protocol in ("tcp", "6", "all") and set(allowed.ports) in _ALL_PORTS for allowed in rule.allowed
    )
