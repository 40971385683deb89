"""`python -m echoless.spark mirror`: checks both clusters, then copies until it is done or stopped."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, get_args

import typer

from echoless.client.cluster import parse_addresses
from echoless.client.copier.settings import Start
from echoless.client.settings import Settings
from echoless.pipeline.exactly_once.errors import OptionError
from echoless.pipeline.exactly_once.options import read_options
from echoless.pipeline.mirror.clusters import TargetTopics
from echoless.pipeline.mirror.copying import MirrorTarget, copy_with_group, copy_with_spark
from echoless.pipeline.mirror.group_mirror import GROUP_BATCH_RECORDS_DEFAULT, GroupMirrorPlan
from echoless.pipeline.mirror.group_sync import GroupSync, SyncedCluster
from echoless.pipeline.mirror.mirror import BATCH_RECORDS_DEFAULT, MirrorPlan
from echoless.pipeline.mirror.settings_sync import SettingsSync
from echoless.pipeline.security import is_security_option
from echoless.pipeline.security_arguments import checked, file_options, refuse_secrets
from echoless.pipeline.streaming.job import pairs
from echoless.pipeline.streaming.locations import resolve_location


def mirror_command(
    *,
    source: Annotated[
        str, typer.Option("--from", metavar="HOST:PORT[,...]", help="The cluster to read.")
    ],
    target: Annotated[
        str, typer.Option("--to", metavar="HOST:PORT[,...]", help="The cluster to write.")
    ],
    checkpoint: Annotated[
        str | None, typer.Option(metavar="DIR", help="Stores the progress; kept between runs.")
    ] = None,
    position: Annotated[
        str,
        typer.Option(
            metavar="checkpoint|group",
            help="Where the progress is: in --checkpoint, or in the group --name of the source, without Spark.",
        ),
    ] = "checkpoint",
    bare_offsets: Annotated[
        bool, typer.Option("--bare-offsets", help="Trust offsets of the group that have no state.")
    ] = False,
    topics: Annotated[str | None, typer.Option(metavar="A,B", help="Topics to mirror.")] = None,
    topics_pattern: Annotated[
        str | None, typer.Option(metavar="REGEX", help="All topics that match, new ones too.")
    ] = None,
    exclude: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Of the topics that match, all but these."),
    ] = None,
    prefix: Annotated[str, typer.Option(help="Before the topics' names in the target.")] = "",
    name: Annotated[
        str, typer.Option(help="The sink's name in the ledger, or the group.")
    ] = "mirror",
    ledger: Annotated[
        str | None, typer.Option(metavar="URI", help="Default: in the checkpoint.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="End when all current records are mirrored.")
    ] = False,
    create_topics: Annotated[
        bool, typer.Option("--create-topics", help="Create missing topics and partitions.")
    ] = False,
    topic_settings: Annotated[
        bool,
        typer.Option(
            "--topic-settings/--no-topic-settings",
            help="Copy the settings of topics to those that are created, and their changes.",
        ),
    ] = True,
    sync_groups: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX", help="Keep the offsets of these groups in the target, translated."
        ),
    ] = None,
    groups_interval_s: Annotated[
        float, typer.Option(min=1, help="Seconds between two translations of groups.")
    ] = 60.0,
    replication_factor: Annotated[
        int, typer.Option(help="Replicas of topics that are created; -1: the target's default.")
    ] = -1,
    batch_records: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="About how many records a batch has; default: 500,000, with a group 10,000.",
        ),
    ] = None,
    interval_s: Annotated[
        float, typer.Option(min=0.01, help="Seconds between two polls of the source.")
    ] = 1.0,
    starting_offsets: Annotated[
        str,
        typer.Option(
            help="earliest or latest (with a group also none), for a start without progress."
        ),
    ] = "earliest",
    allow_data_loss: Annotated[
        bool, typer.Option("--allow-data-loss", help="Continue if records were deleted unread.")
    ] = False,
    source_option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An option of Spark's Kafka source."),
    ] = None,
    target_option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An option of the sink: docs/sink.md."),
    ] = None,
    source_config: Annotated[
        str | None,
        typer.Option("--from-config", metavar="FILE", help="Properties with its security options."),
    ] = None,
    target_config: Annotated[
        str | None,
        typer.Option("--to-config", metavar="FILE", help="Properties with its security options."),
    ] = None,
    metrics_listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve Prometheus metrics.")
    ] = None,
    master: Annotated[str | None, typer.Option(help="Spark's master; default: local[*].")] = None,
) -> None:
    """Mirror topics to another cluster, each record once."""
    source_options = pairs(source_option, "--source-option")
    refuse_secrets(source_options, "--source-option", "--from-config")
    target_options = pairs(target_option, "--target-option")
    refuse_secrets(target_options, "--target-option", "--to-config")
    target_options = {
        **file_options(target_config, "--to-config", has_ledger=True),
        **target_options,
    }
    target_security = checked(target_options, "--to-config")
    own_options = {**file_options(source_config, "--from-config"), **source_options}
    reader_options = {n: v for n, v in source_options.items() if not is_security_option(n)}
    source_security = checked(own_options, "--from-config")
    settings = (
        SettingsSync(
            source=_servers(source, "--from"),
            source_security=source_security,
            target=target,
            target_security=target_security,
            prefix=prefix,
        )
        if topic_settings and create_topics
        else None
    )
    names = _names(topics, topics_pattern, exclude)
    to = MirrorTarget(
        servers=target,
        options=target_options,
        security=target_security,
        topics=TargetTopics(
            _servers(target, "--to"),
            creates=create_topics,
            replication_factor=replication_factor,
            security=target_security,
            settings_of=None if settings is None else settings.of_target_topics,
        ),
        settings=settings,
    )
    if position == "group":
        refused = {
            "--checkpoint": checkpoint,
            "--ledger": ledger,
            "--master": master,
            "--allow-data-loss": allow_data_loss,
            "--sync-groups": sync_groups,
            "--source-option": reader_options,
        }
        _refuse_with_group(refused)
        group_plan = GroupMirrorPlan(
            source=_servers(source, "--from"),
            target=target,
            source_security=source_security,
            producer=_producer_settings(target, target_options),
            group=name,
            topics=names,
            pattern=topics_pattern,
            exclude=exclude,
            prefix=prefix,
            once=once,
            starting_offsets=_start(starting_offsets),
            bare_offsets=bare_offsets,
            batch_records=batch_records or GROUP_BATCH_RECORDS_DEFAULT,
            interval_s=interval_s,
        )
        copy_with_group(group_plan, to, metrics_listen=metrics_listen)
        return
    if checkpoint is None or position != "checkpoint":
        given = "--checkpoint DIR is missing" if checkpoint is None else f"not {position!r}"
        raise typer.BadParameter(
            f"checkpoint, with --checkpoint DIR, or group; {given}", param_hint="--position"
        )
    plan = MirrorPlan(
        source=_servers(source, "--from"),
        topics=names,
        pattern=topics_pattern,
        exclude=exclude,
        prefix=prefix,
        checkpoint=resolve_location(checkpoint),
        batch_records=batch_records or BATCH_RECORDS_DEFAULT,
        starting_offsets=starting_offsets,
        fails_on_data_loss=not allow_data_loss,
        once=once,
        interval_s=interval_s,
        source_options=reader_options,
        source_security=source_security,
    )
    groups = (
        GroupSync(
            source=SyncedCluster(servers=plan.source, security=source_security),
            target=SyncedCluster(servers=target, security=target_security),
            name=name,
            pattern=_regex(sync_groups, "--sync-groups"),
            prefix=prefix,
            interval_s=groups_interval_s,
        )
        if sync_groups is not None
        else None
    )
    copy_with_spark(
        plan,
        to,
        name=name,
        ledger=ledger,
        master=master,
        metrics_listen=metrics_listen,
        groups=groups,
    )


def _refuse_with_group(options: Mapping[str, object]) -> None:
    """Refuses options that a mirror with a group does not have. Raises `typer.BadParameter`."""
    for option, value in options.items():
        if value:
            raise typer.BadParameter("not with --position group", param_hint=option)


def _producer_settings(target: str, options: Mapping[str, str]) -> Settings:
    """Reads the sink's options `kafka.*` for a mirror without a sink. Raises `typer.BadParameter`."""
    foreign = [one for one in options if not one.lower().startswith("kafka.")]
    _refuse_with_group({f"--target-option {one}": True for one in foreign})
    try:
        found = read_options(
            {"kafka.bootstrap.servers": target, **options}, name="mirror", ledger="none"
        )
    except OptionError as error:
        raise typer.BadParameter(str(error), param_hint="--target-option") from error
    return found.settings


def _start(text: str) -> Start:
    for one in get_args(Start):
        if one == text:
            start: Start = one
            return start
    raise typer.BadParameter(
        f"earliest, latest or none, not {text!r}", param_hint="--starting-offsets"
    )


def _regex(text: str, option: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise typer.BadParameter(f"{error}", param_hint=option) from error
    return text


def _servers(text: str, option: str) -> str:
    try:
        parse_addresses(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
    return text


def _names(topics: str | None, pattern: str | None, exclude: str | None) -> tuple[str, ...]:
    if (topics is None) == (pattern is None):
        raise typer.BadParameter("give --topics or --topics-pattern")
    if exclude is not None and pattern is None:
        raise typer.BadParameter("with --topics-pattern only", param_hint="--exclude")
    _regex(pattern or "", "--topics-pattern")
    _regex(exclude or "", "--exclude")
    return tuple(name.strip() for name in (topics or "").split(",") if name.strip())
