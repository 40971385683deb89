"""Whether rules for faults may be set on this broker: `allow_faults`.

A rule can lose acknowledgements and kill the broker, whose clients may not know what it is there for. So
unless the operator says otherwise, rules are only for a broker that only its own machine can reach and
that does not restrict its clients.
"""

from __future__ import annotations

from echoless.broker.config.names import AllowFaults, Authorizer, Config

_REMEDY = "start the broker with --allow-faults (allow_faults=true) if it is there to be broken"


def refusal(config: Config) -> str | None:
    """Why no rule may be set, and what to do about it; None if rules are allowed."""
    if config.allow_faults is AllowFaults.TRUE:
        return None
    if config.allow_faults is AllowFaults.FALSE:
        return f"faults are not allowed on this broker (allow_faults=false); {_REMEDY}"
    if config.authorizer is not Authorizer.NONE:
        return f"faults are not allowed on this broker: clients may do what ACLs allow; {_REMEDY}"
    reachable = [
        f"{name} {address}"
        for name, addresses in (
            ("listen", config.listen),
            ("native_listen", (config.native_listen,)),
            ("admin_listen", (config.admin_listen,)),
        )
        for address in addresses
        if not address.is_loopback
    ]
    if not reachable:
        return None
    return (
        f"faults are not allowed on this broker: other machines can reach it "
        f"({', '.join(reachable)}); {_REMEDY}"
    )
