"""`echoless features`: the level of what a cluster stores, which its oldest broker bounds, and raising it."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from echoless.broker.config.feature_levels import FEATURE
from echoless.cli.cluster import ClusterConnections, check
from echoless.cli.errors import CommandError
from echoless.cli.option_groups import grouped
from echoless.cli.options import BrokerOptions, Json
from echoless.cli.output import print_json, print_table
from echoless.client.software import software_fields

app = typer.Typer(
    no_args_is_help=True,
    help="Show the level of what the cluster stores, which its oldest broker bounds; raise it after an upgrade.",
)

_COLUMNS: Final = ("feature", "supported_min", "supported_max", "finalized")
_TIMEOUT_MS: Final = 30_000


@app.command()
@grouped
def describe(*, json: Json = False, broker: BrokerOptions) -> None:
    """Show each feature: the levels that the broker supports, and the one in force in the cluster."""
    with ClusterConnections.open(broker) as cluster:
        found = _features(cluster)
    if json:
        print_json(found)
        return
    print_table("features", _COLUMNS, [tuple(one[column] for column in _COLUMNS) for one in found])


@app.command()
@grouped
def upgrade(
    *,
    level: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="LEVEL", help="The level; by default the newest of the broker."
        ),
    ] = None,
    broker: BrokerOptions,
) -> None:
    """Let the cluster store what its newest release adds, for which all brokers have to be new. There is no way back."""
    with ClusterConnections.open(broker) as cluster:
        ours = next((one for one in _features(cluster) if one["feature"] == FEATURE), None)
        if ours is None:
            raise CommandError(
                f"the broker does not announce the feature {FEATURE}: it is of 0.2.0 or older; upgrade it first"
            )
        wanted = ours["supported_max"] if level is None else level
        update = {
            "feature": FEATURE,
            "max_version_level": wanted,
            "upgrade_type": 1,
            "allow_downgrade": False,
        }
        answer = cluster.request(
            "update_features",
            {"feature_updates": [update], "timeout": _TIMEOUT_MS, "validate_only": False},
        )
    check(answer.error_code, FEATURE, answer.error_message)
    for row in answer.results:
        check(row.error_code, row.feature, row.error_message)
    typer.echo(f"{FEATURE} is at level {wanted}", err=True)


def _features(cluster: ClusterConnections) -> list[dict[str, Any]]:
    answer = cluster.request("api_versions", software_fields())
    finalized = {
        one.name: one.max_version_level for one in getattr(answer, "finalized_features", ())
    }
    return [
        {
            "feature": one.name,
            "supported_min": one.min_version,
            "supported_max": one.max_version,
            "finalized": finalized.get(one.name, 0),
        }
        for one in getattr(answer, "supported_features", ())
    ]
