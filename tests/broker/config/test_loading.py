"""Sources of configuration values, and the errors about invalid ones."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from echoless.broker.config.loading import Address, Config, ConfigError, LogFlush, load_config
from echoless.broker.config.names import AllowFaults, ProducerIdBinding, settings
from echoless.broker.config.values import canonical
from echoless.protocol.dedup import UnknownProducerId


def test_defaults_are_those_of_the_design_page() -> None:
    """Without any source each name has the default that the design page promises."""
    config = load_config([], {})
    assert asdict(config) == asdict(Config())
    assert config.listen == (Address("127.0.0.1", 9092),)
    assert config.log_segment_bytes == 134_217_728
    assert config.message_max_bytes == 1_048_588
    assert config.producer_state_batches_to_retain == 5
    assert config.unknown_producer_id is UnknownProducerId.REJECT
    assert config.zookeeper_hosts is None


def test_defaults_are_values_that_their_kind_accepts() -> None:
    """Every default, written as text, reads back as itself."""
    for name, setting in settings().items():
        assert setting.kind.read(canonical(setting.default)) == setting.default, name


def test_flag_precedes_environment_precedes_file_precedes_default(tmp_path: Path) -> None:
    """Each source hides the ones after it, name by name."""
    file = tmp_path / "broker.toml"
    file.write_text('broker_id = 2\nnum_partitions = 2\ndata_dir = "here"\nlog_flush = "commit"\n')
    environ = {"ECHOLESS_BROKER_ID": "3", "ECHOLESS_NUM_PARTITIONS": "3", "PATH": "/bin"}
    config = load_config(["--config", str(file), "--broker-id", "4"], environ)
    assert (config.broker_id, config.num_partitions, config.data_dir) == (4, 3, "here")
    assert config.log_flush is LogFlush.COMMIT
    assert config.min_insync_replicas == 1


def test_set_is_a_flag_and_hides_the_environment() -> None:
    """`--set` gives any name a value, before what the environment says."""
    config = load_config(["--set", "log_roll_ms=7d"], {"ECHOLESS_LOG_ROLL_MS": "1h"})
    assert config.log_roll_ms == 7 * 86_400_000


def test_an_option_may_be_joined_to_its_value_and_be_repeated() -> None:
    """The last one counts; `--set` adds up. A negative number is a value, `--option` never is."""
    arguments = ["--broker-id=3", "--broker-id", "4", "--data-dir=a=b", "--allow-faults"]
    sets = ["--set", "log_retention_bytes=1", "--set=log_retention_bytes=-1", "--set=log_flush=os"]
    config = load_config([*arguments, *sets], {})
    assert (config.broker_id, config.data_dir, config.log_retention_bytes) == (4, "a=b", -1)
    assert config.allow_faults is AllowFaults.TRUE
    with pytest.raises(ConfigError, match=r"--broker-id: .*, not '-1'"):
        load_config(["--broker-id", "-1"], {})


@pytest.mark.parametrize(
    ("text", "binding"),
    [
        ("principal", ProducerIdBinding.PRINCIPAL),
        ("true", ProducerIdBinding.PRINCIPAL),
        ("None", ProducerIdBinding.NONE),
        ("false", ProducerIdBinding.NONE),
    ],
)
def test_binding_is_a_choice_that_began_as_a_switch(text: str, binding: ProducerIdBinding) -> None:
    """Both are taken, since the design page has the switch."""
    assert load_config(["--set", f"producer_id_binding={text}"], {}).producer_id_binding is binding


def test_environment_names_the_file(tmp_path: Path) -> None:
    """A container can name its configuration file without touching the command."""
    file = tmp_path / "broker.toml"
    file.write_text("auto_create_topics_enable = false\n")
    assert not load_config([], {"ECHOLESS_CONFIG": str(file)}).auto_create_topics_enable


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("[::1]:9092", Address("::1", 9092)),
        ("broker-1.example:65535", Address("broker-1.example", 65535)),
        (":9092", Address("0.0.0.0", 9092)),
    ],
)
def test_address_may_be_a_name_ipv4_ipv6_or_a_port(text: str, address: Address) -> None:
    """Every usual way to write an address works, and is written back the way it is read."""
    config = load_config(["--native-listen", text], {})
    assert config.native_listen == address
    assert load_config(["--native-listen", str(address)], {}).native_listen == address


@pytest.mark.parametrize(
    ("text", "size"), [("64KiB", 65536), ("1gib", 2**30), ("-1", -1), (" 10 ", 10)]
)
def test_size_may_carry_a_unit(text: str, size: int) -> None:
    """Sizes are bytes, or a number and a binary unit."""
    config = load_config(["--set", f"log_retention_bytes={text}"], {})
    assert config.log_retention_bytes == size


def test_every_interface_needs_an_address_for_clients() -> None:
    """No one can connect to the wildcard, so the advertised address must be configured."""
    for wildcard in (":9092", "0.0.0.0:9092", "[::]:9092", "0:9092", "[::0]:9092"):
        with pytest.raises(ConfigError, match=r"^--advertise: takes HOST:PORT .* it is needed"):
            load_config(["--listen", wildcard], {})
    config = load_config(["--listen", ":9092", "--advertise", "kafka.example:9092"], {})
    assert config.advertise == (Address("kafka.example", 9092),)


def test_two_listeners_are_written_with_a_comma() -> None:
    """A second address has a comma before it, and a second advertised address goes with it."""
    pair = (Address("0.0.0.0", 9092), Address("0.0.0.0", 19092))
    advertised = (Address("broker1", 9092), Address("localhost", 19092))
    environ = {
        "ECHOLESS_LISTEN": "0.0.0.0:9092, :19092",
        "ECHOLESS_ADVERTISE": "broker1:9092,localhost:19092",
    }
    config = load_config([], environ)
    assert (config.listen, config.advertise) == (pair, advertised)


def test_zookeeper_hosts_are_what_kazoo_takes() -> None:
    """The coordinator URL without its scheme is a ZooKeeper connection string."""
    config = load_config(["--coordinator", "zookeeper://a:2181,b:2181/kafka"], {})
    assert config.zookeeper_hosts == "a:2181,b:2181/kafka"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--broker-id", "x"], "--broker-id: takes an integer, at least 0, not 'x'"),
        (["--broker-id"], "--broker-id: expected one argument"),
        (["--broker-id", "--listen", "9092"], "--broker-id: expected one argument"),
        (["serve"], "serve: there is no such option; serve --help lists them"),
        (["--bogus"], "--bogus: there is no such option; serve --help lists them"),
        (["--brok", "1"], "--brok: there is no such option; serve --help lists them"),
        (["--set", "broker_id"], "--set: takes NAME=VALUE, not 'broker_id'"),
        (
            ["--set", "log.segment.bytes=1"],
            "--set log.segment.bytes: there is no such option; did you mean log_segment_bytes?",
        ),
        (
            ["--set", "log_segment_bytes=13"],
            "--set log_segment_bytes: takes bytes (1048576, or 1MiB), at least 14, not '13'",
        ),
        (
            ["--set", "log_segment_bytes=1MB"],
            "--set log_segment_bytes: takes bytes (1048576, or 1MiB), at least 14, not '1MB'",
        ),
        (["--set", "log_flush=never"], "--set log_flush: takes os or commit, not 'never'"),
        (
            ["--advertise", "0.0.0.0:9092"],
            "--advertise: takes HOST:PORT that clients can connect to, or arrival, one for each of --listen, not '0.0.0.0:9092'",
        ),
        (
            ["--listen", ":1,:2", "--advertise", "a:1"],
            "--advertise: takes as many addresses as --listen has, 2, not 1",
        ),
        (
            ["--set", "advertise_networks=EXTERNAL@10.0.0.0/8=a:1"],
            "advertise_networks: EXTERNAL is not listened on: --listen has one address",
        ),
        (
            [
                *("--listen", ":1", "--advertise", "arrival", "--native-listen", ":2"),
                *("--coordinator", "zookeeper://a:1"),
            ],
            "native_advertise: takes HOST:PORT at which other brokers reach this one; it is needed because --advertise is arrival, and --listen and --native-listen are every interface",
        ),
        (
            ["--listen", ":1,:2,:3"],
            "--listen: takes HOST:PORT (127.0.0.1:9092, [::1]:9092; port 0 picks a free one), or 2 of them with a comma between, not ':1,:2,:3'",
        ),
        (
            ["--set", "message_max_bytes=1GiB"],
            "message_max_bytes: takes at most request_size_max (104857600), not 1073741824",
        ),
        (["--config", "/nowhere"], "--config: cannot read /nowhere: No such file or directory"),
    ],
)
def test_mistakes_are_one_line_with_the_option_and_what_it_takes(
    argv: list[str], message: str
) -> None:
    """Whatever is wrong on the command line is said in one line that names it."""
    with pytest.raises(ConfigError) as caught:
        load_config(argv, {})
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["9092", "::1:9092", "host:", "host:65536", "host:-1", ""])
def test_listen_takes_an_address_only(text: str) -> None:
    """Anything that is not an address, or has no valid port, is refused."""
    with pytest.raises(ConfigError, match=r"^--listen: takes HOST:PORT"):
        load_config(["--listen", text], {})


@pytest.mark.parametrize(
    "url", ["zookeeper://", "zookeeper://a", "zookeeper://a:1/", "etcd://a:1", "zookeeper"]
)
def test_coordinator_takes_embedded_or_a_zookeeper_url(url: str) -> None:
    """A coordinator that could never be connected to is refused at once."""
    with pytest.raises(ConfigError, match=r"^--coordinator: takes embedded, or zookeeper://"):
        load_config(["--coordinator", url], {})


def test_unknown_environment_variable_is_a_mistake() -> None:
    """A misspelt variable would otherwise be ignored without a word."""
    with pytest.raises(ConfigError, match=r"^ECHOLESS_BROKERID: .* did you mean broker_id\?$"):
        load_config([], {"ECHOLESS_BROKERID": "1"})


def test_service_variables_of_kubernetes_are_not_options() -> None:
    """In a cluster with a service called echoless the broker still starts."""
    environ = {
        "ECHOLESS_SERVICE_HOST": "10.0.0.1",
        "ECHOLESS_SERVICE_PORT_KAFKA": "9092",
        "ECHOLESS_PORT": "tcp://10.0.0.1:9092",
        "ECHOLESS_PORT_9092_TCP_ADDR": "10.0.0.1",
        "ECHOLESS_HEADLESS_SERVICE_HOST": "None",
        "ECHOLESS_BOOTSTRAP_SERVER": "127.0.0.1:9092",
    }
    assert asdict(load_config([], environ)) == asdict(Config())


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("broker_id = ", r"^--config: .* is not TOML: "),
        ("broker = 1", r"broker\.toml: broker: there is no such option; did you mean broker_id\?$"),
        ("broker_id = [1]", r"broker\.toml: broker_id: takes an integer, at least 0, not '\[1\]'$"),
        ("[log]\nflush = 'os'", r"broker\.toml: log: there is no such option"),
    ],
)
def test_mistakes_in_the_file_name_the_file(tmp_path: Path, toml: str, message: str) -> None:
    """A wrong name or value in the file is reported with the file's name."""
    file = tmp_path / "broker.toml"
    file.write_text(toml)
    with pytest.raises(ConfigError, match=message):
        load_config(["--config", str(file)], {})


def test_help_lists_every_name(capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` exits 0 and shows each name, as a flag or as one that `--set` takes."""
    with pytest.raises(SystemExit) as caught:
        load_config(["--help"], {})
    text = capsys.readouterr().out
    assert caught.value.code == 0
    for name, setting in settings().items():
        flag = "--" + name.replace("_", "-")
        assert (flag if setting.flag_metavar else f"\n  {name} = ") in text


def test_a_secret_is_shown_in_no_error_and_no_repr() -> None:
    """Errors about a secret do not contain it."""
    with pytest.raises(ConfigError) as caught:
        load_config([], {"ECHOLESS_ZOOKEEPER_DIGEST": "no-colon-hunter2"})
    assert "ECHOLESS_ZOOKEEPER_DIGEST: takes USER:PASSWORD" in str(caught.value)
    config = load_config([], {"ECHOLESS_ZOOKEEPER_DIGEST": "broker:hunter2"})
    assert config.zookeeper_digest == "broker:hunter2"
    assert "hunter2" not in f"{caught.value} {config}"
