"""Settings from a file and the environment. Every error gets a sentence."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.config.settings import Settings
from proxy.config.sources import load_settings
from proxy.errors import SettingsError

Load = Callable[..., Settings]


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("DELAY_PROXY_"):
            monkeypatch.delenv(name)


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    def load_with(text: str = "", *chosen: str, **variables: str) -> Settings:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        path = tmp_path / "proxy.yaml"
        path.write_text(text, "utf-8")
        return load_settings(path, chosen)

    return load_with


def refusal(load: Load, text: str = "", *chosen: str, **variables: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load(text, *chosen, **variables)
    return str(caught.value)


def test_without_a_file_the_defaults_hold() -> None:
    assert load_settings(None) == Settings()


def test_an_empty_file_and_empty_sections_change_nothing(load: Load) -> None:
    assert load("") == Settings()
    assert load("wheel:\nkafka:\nlog:\n") == Settings()


def test_the_file_sets_what_it_names_and_nothing_else(load: Load) -> None:
    settings = load("wheel: {precision_ms: 500}\nmax_delay: 7d\nlevels: 1s 2m\n")
    assert settings.wheel.precision_ms == 500
    assert settings.wheel.slots == Settings().wheel.slots
    assert settings.max_delay_ms == 7 * 86_400_000
    assert settings.levels_ms == (1_000, 120_000)


def test_the_environment_beats_the_file_key_by_key(load: Load) -> None:
    settings = load(
        "admin: {port: 1, host: 10.0.0.1}\nclock: {max_step: 1s}\n",
        DELAY_PROXY_ADMIN__PORT="9500",
        DELAY_PROXY_CLOCK__MAX_STEP="9s",
        DELAY_PROXY_MAX_DELAY="PT1H",
    )
    assert (settings.admin.port, settings.admin.host) == (9500, "10.0.0.1")
    assert settings.clock.max_step_ms == 9_000
    assert settings.max_delay_ms == 3_600_000


def test_kafka_settings_pass_through_as_text(load: Load) -> None:
    settings = load("kafka: {enable.ssl.certificate.verification: true, socket.timeout.ms: 5000}")
    assert settings.kafka == {
        "bootstrap.servers": "localhost:9092",
        "enable.ssl.certificate.verification": "true",
        "socket.timeout.ms": "5000",
    }


def test_kafka_variables_write_underscores_for_dots(load: Load) -> None:
    settings = load(
        "kafka: {bootstrap.servers: 'file:1', client.id: me}",
        DELAY_PROXY_KAFKA__BOOTSTRAP_SERVERS="env:2",
        DELAY_PROXY_KAFKA__SASL_PASSWORD="0x12",
    )
    assert settings.kafka == {
        "bootstrap.servers": "env:2",
        "client.id": "me",
        "sasl.password": "0x12",
    }


def test_texts_that_look_like_numbers_stay_texts(load: Load) -> None:
    assert load("", DELAY_PROXY_GROUP_ID="007").group_id == "007"


def test_a_broker_address_may_name_its_protocol(load: Load) -> None:
    bootstrap = "SASL_SSL://a:9092, [::1]:9092,b"
    assert load(f"kafka: {{bootstrap.servers: '{bootstrap}'}}").bootstrap_servers == bootstrap


@pytest.mark.parametrize(
    "text",
    ["0123456", "0x1F", "12:30:45", "1_000", "1.10", ".5", "yes", "1e3", "2026-01-01", "007", "=x"],
)
def test_kafka_settings_are_text_exactly_as_written(load: Load, text: str) -> None:
    settings = load(f"kafka:\n  sasl.password: {text}\n  sasl.username: '{text}'\n")
    assert (settings.kafka["sasl.password"], settings.kafka["sasl.username"]) == (text, text)


@pytest.mark.parametrize("text", ["007", "1:30", "0x1F"])
def test_names_that_look_like_numbers_of_old_yaml_stay_text(load: Load, text: str) -> None:
    settings = load(f"group_id: {text}\ninstance_id: {text}\n")
    assert (settings.group_id, settings.instance_id) == (text, text)
    if text == "007":
        assert load("targets: {allow: [007]}").targets.allow == ("007",)


@pytest.mark.parametrize(
    "text",
    [
        "wheel: {precision_ms: 010}",
        "release: {max_per_second: 0100}",
        "release: {per_target: {orders: 0100}}",
        "retry: {groups: {billing: {max_attempts: 010}}}",
        "clock: {max_step: 0100}",
        "max_delay: 1:30",
        "release: {max_per_second: 1:30}",
        "admin: {port: 0x1F}",
        "max_delay: 2026-01-01",
    ],
)
def test_numbers_that_are_read_in_two_ways_are_refused(load: Load, text: str) -> None:
    assert "proxy.yaml line 1: `" in refusal(load, text)


@pytest.mark.parametrize("section", ["targets", "release", "kafka"])
def test_a_file_that_contains_itself_is_refused(load: Load, section: str) -> None:
    assert refusal(load, f"{section}: &a {{per_target: *a}}")


@pytest.mark.parametrize("text", ["orders.*, payments", '["orders.*", "payments"]'])
def test_lists_in_variables_are_written_with_commas_or_as_json(load: Load, text: str) -> None:
    settings = load("", DELAY_PROXY_TARGETS__ALLOW=text)
    assert settings.targets.allow == ("orders.*", "payments")


def test_null_in_a_variable_takes_a_value_away(load: Load) -> None:
    assert (
        load("admin: {token: a-token-nobody-guesses}", DELAY_PROXY_ADMIN__TOKEN="null").admin.token
        is None
    )


def test_workers_auto_is_decided_when_the_partitions_are_known(load: Load) -> None:
    assert load("workers: auto").workers is None
    assert load("workers: 3").workers == 3


def test_an_unknown_key_is_refused_with_its_line_and_the_nearest_name(load: Load) -> None:
    assert "proxy.yaml line 3: `wheel.precison_ms` is not a setting" in refusal(
        load, "group_id: x\nwheel:\n  precison_ms: 5\n"
    )
    assert "nearest known key is `wheel`" in refusal(load, "whel: {slots: 5}")


def test_an_unknown_variable_is_refused_with_the_nearest_name(load: Load) -> None:
    said = refusal(load, "", DELAY_PROXY_MAXDELAY="1d")
    assert "The environment variable DELAY_PROXY_MAXDELAY is not a setting" in said
    assert "`DELAY_PROXY_MAX_DELAY`" in said


def test_everything_wrong_is_said_at_once(load: Load) -> None:
    said = refusal(load, "grup_id: x\nadmin: {prt: 1}\n", DELAY_PROXY_LOG__LEVL="info")
    assert len(said.splitlines()) == 3


def test_variables_that_kubernetes_makes_of_a_service_are_no_settings(load: Load) -> None:
    settings = load(
        "",
        DELAY_PROXY_SERVICE_HOST="10.0.0.1",
        DELAY_PROXY_SERVICE_PORT_METRICS="9464",
        DELAY_PROXY_PORT="tcp://10.0.0.1:9464",
        DELAY_PROXY_PORT_9464_TCP_ADDR="10.0.0.1",
        DELAY_PROXY_KAFKA_DELAY_PROXY_SERVICE_HOST="10.0.0.1",
    )
    assert settings == Settings()


def test_a_key_that_stands_twice_is_refused(load: Load) -> None:
    said = refusal(load, "group_id: a\nlog: {level: info}\ngroup_id: b\n")
    assert "line 3: `group_id` is set twice, first on line 1" in said


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("store: tree", "must be 'wheel' or 'rocksdb'"),
        ("bodies: broker", "must be 'local' or 'kafka'"),
        ("header_aliases: [cesuim]", "did you mean cesium?"),
        ("roll_after: never", "is not a delay"),
        (
            "release: {beyond_rate: later}",
            "`release.beyond_rate` is not a setting. Known here: max_",
        ),
        ("release: {max_per_second: 0}", "greater than or equal to 1"),
        (
            "retry: {groups: {g: {policy: custom}}}",
            "set `delays` (1s 10s 1m) with `policy: custom`",
        ),
        ("retry: {groups: {g: {first_delay: 1s}}}", "need `policy: exponential`"),
        (
            "retry: {groups: {g: {policy: exponential, first_level: 5}}}",
            "`first_level` needs `policy: levels`",
        ),
        ('admin: {token: "tok\\n"}', "it cannot be sent in a header"),
        ("requests: {serve: [recal]}", "'recal' is not a kind of request: did you mean recall?"),
        ("admin: {token: tök}", "it cannot be sent in a header"),
        ('admin: {token: ""}', "it has 0 characters and can be guessed: use 16 or more"),
        ("admin: {token: fifteen-letters}", "it has 15 characters and can be guessed"),
        ("max_delay: soon", "'soon' is not a delay"),
        ("max_delay: 0", "greater than 0"),
        ("levels: 5s 1s", "is not in order"),
        ("log: {level: loud}", "must be 'debug', 'info', 'warning' or 'error'"),
        ("wheel: {slots: many}", "must be a valid integer"),
        ("wheel: 3", "must have keys and values"),
        ("topics: {ingress: a/b}", "is not a topic name"),
        ("topics: {ingress: same, outcomes: same}", "must be six topics"),
        ("targets: {allow: ['']}", "an empty pattern matches no topic"),
        ("admin: {port: 70000}", "less than or equal to 65535"),
        ("kafka: {bootstrap.servers: 'http://kafka:9092/'}", "without a scheme"),
        ("kafka: {bootstrap.servers: 'a:9092,kafka://b:9092'}", "as in b:9092"),
        ("kafka: {bootstrap.servers: 'a:9092/topic'}", "without a path"),
        ("kafka: {bootstrap.servers: '//kafka:9092'}", "as in kafka:9092"),
        ("kafka: {bootstrap.servers: 'kafka:abc'}", "write host:port"),
        ("kafka: {bootstrap.servers: 'kafka:99999'}", "write host:port"),
        ("kafka: {bootstrap.servers: 'user:secret@kafka:9092'}", "write host:port"),
        ("kafka: {bootstrap.servers: 'http:kafka:9092'}", "write host:port"),
        ("kafka: {bootstrap.servers: 'a:9092,kafka:b:9092'}", "write host:port"),
        ("kafka: {bootstrap.servers: ' '}", "write host:port"),
        ("kafka: {metadata.broker.list: 'kafka:9092'}", "`bootstrap.servers`: use that name"),
        ("kafka: {ssl: {ca: x}}", "must be text or a number"),
        ("a: [", "is not YAML"),
        ("topics: {settings: timer.audit}", "must be six topics"),
        ("topics: {replication_factor: 1, min_insync_replicas: 2}", "no write would succeed"),
        ("- 1", "must have keys and values"),
    ],
)
def test_a_value_that_cannot_be_followed_is_refused_with_its_place(
    load: Load, text: str, sentence: str
) -> None:
    said = refusal(load, text)
    assert sentence in said
    assert "proxy.yaml" in said


@pytest.mark.parametrize("name", ["group.id", "transactional.id", "isolation.level", "acks"])
def test_what_exactly_once_rests_on_is_refused_in_the_kafka_section(load: Load, name: str) -> None:
    said = refusal(load, f"kafka: {{{name}: x}}")
    assert f"`kafka.{name}`" in said
    assert "the proxy sets this itself" in said


def test_a_wrong_value_from_the_environment_names_the_variable(load: Load) -> None:
    said = refusal(load, "max_delay: 7d", DELAY_PROXY_MAX_DELAY="soon")
    assert said.startswith("The environment variable DELAY_PROXY_MAX_DELAY:")


SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "text",
    [
        f'kafka:\n  sasl.password: "{SECRET}\n',
        f"kafka:\n  sasl.password: {SECRET}: x\n",
        f"kafka:\n  sasl.password: *{SECRET}\n",
        f"kafka:\n  sasl.password: !{SECRET} x\n",
        f"kafka:\n  sasl.password: &{SECRET}\n&{SECRET}",
        f"kafka:\n\tsasl.password: {SECRET}\n",
        f'kafka:\n  sasl.password: "\\{SECRET}"\n',
        f"kafka:\n  sasl.password: '{SECRET}'{SECRET}\n",
        f"kafka:\n  sasl.password: '{SECRET}' '\n",
        f"kafka:\n  sasl.password: %{SECRET}\n",
        f"kafka:\n  sasl.password: @{SECRET}\n",
        f"kafka:\n  sasl.password: `{SECRET}\n",
        f"kafka:\n  sasl.password: [{SECRET}\n",
        f"kafka:\n  sasl.password: [{SECRET}]\n",
        f"kafka:\n  sasl.password: {{{SECRET}: {SECRET}}}\n",
        f"kafka:\n  sasl.password: {SECRET}\n  sasl.password: {SECRET}\n",
        f"kafka: {SECRET}\n",
        f"admin:\n  token: [{SECRET}]\n",
        f"admin: {SECRET}\n",
        f"{SECRET}\n",
        f"kafka:\n  sasl.password: {SECRET}\x00\n",
    ],
)
def test_no_error_about_a_file_repeats_a_secret(load: Load, text: str) -> None:
    said = refusal(load, text)
    assert SECRET not in said
    assert "proxy.yaml" in said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DELAY_PROXY_KAFKA", f'{{"sasl.password": "{SECRET}"'),
        ("DELAY_PROXY_KAFKA", SECRET),
        ("DELAY_PROXY_KAFKA__GROUP_ID", SECRET),
        ("DELAY_PROXY_ADMIN", f'{{"token": ["{SECRET}"]}}'),
        ("DELAY_PROXY_ADMIN", SECRET),
        ("DELAY_PROXY_ADMIN__TOKEN__X", SECRET),
        ("DELAY_PROXY_ADMIN__TOKENS__X", SECRET),
    ],
)
def test_no_error_about_the_environment_repeats_a_secret(load: Load, name: str, value: str) -> None:
    said = refusal(load, **{name: value})
    assert SECRET not in said
    assert name in said or "admin" in said or "kafka" in said


def test_a_wrong_password_is_not_repeated(load: Load) -> None:
    said = refusal(load, "kafka: {sasl.password: [4711]}\nadmin: {token: 4712}")
    assert "token" in said
    assert "471" not in said


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        load_settings(tmp_path / "none.yaml")


def test_a_file_that_is_not_text_is_said(tmp_path: Path) -> None:
    path = tmp_path / "proxy.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match="not UTF-8"):
        load_settings(path)


def test_keys_that_an_operator_names_are_taken_as_they_are(load: Load) -> None:
    settings = load(
        "recovery: {accept_loss_below: {0: 1200}}\n"
        'release: {per_target: {"orders-*": 500, "*": 5000}}\n'
    )
    assert settings.recovery.accept_loss_below == {0: 1200}
    assert list(settings.release.per_target.items()) == [("orders-*", 500), ("*", 5000)]


def test_rules_for_the_overdue_are_read_from_a_file_and_from_a_variable(load: Load) -> None:
    text = "release: {overdue: [{targets: 'alerts-*', older_than: 10m, action: drop}]}"
    (rule,) = load(text).release.overdue
    assert (rule.targets, rule.older_than_ms, rule.action) == ("alerts-*", 600_000, "drop")
    written = '[{"targets": "a", "older_than": "1m", "action": "deliver"}]'
    (rule,) = load("", DELAY_PROXY_RELEASE__OVERDUE=written).release.overdue
    assert (rule.targets, rule.older_than_ms, rule.action) == ("a", 60_000, "deliver")


def test_sizes_are_read_with_their_units_from_a_file_and_from_variables(load: Load) -> None:
    settings = load(
        "disk_reserve: 1GiB\n"
        "admission: {bytes: 2GiB, bytes_per_target: {'orders-*': 512MiB, '*': 10}}",
        DELAY_PROXY_ADMISSION__BYTES="64KiB",
    )
    assert settings.disk_reserve_bytes == 1 << 30
    assert settings.admission.size_bytes == 1 << 16
    assert settings.admission.bytes_per_target == {"orders-*": 512 << 20, "*": 10}
    assert load("disk_reserve: auto").disk_reserve_bytes is None
    assert load("disk_reserve: 0").disk_reserve_bytes == 0


def test_a_wrong_size_is_refused_with_what_would_be_right(load: Load) -> None:
    said = refusal(load, "disk_reserve: 2GB\nadmission:\n  bytes: 0\n  bytes_per_target: {a: x}\n")
    assert "proxy.yaml line 1" in said
    assert "'2GB' is not a size: write bytes (1048576)" in said
    assert "proxy.yaml line 3" in said
    assert "greater than or equal to 1" in said
    assert "proxy.yaml line 4" in said


def test_bytes_are_not_limited_where_data_dir_has_none_of_them(load: Load) -> None:
    said = refusal(load, "bodies: kafka\nadmission: {bytes: 1GiB}\n")
    assert "use admission.records and per_target" in said


def test_a_memory_budget_that_is_too_small_is_refused_with_the_least(load: Load) -> None:
    said = refusal(load, "memory: {per_worker: 32MiB}\n")
    assert "proxy.yaml line 1: `memory`" in said
    assert "set it to at least 64MiB" in said
    assert load("memory: {per_worker: 2GiB}\n").memory.per_worker_bytes == 2 * 2**30
    own = "kafka: {queued.max.messages.kbytes: 2000000}\n"
    assert "at least" in refusal(load, own), "the default counts, too"


@pytest.mark.parametrize(
    "servers",
    [
        "kafka",
        "kafka:9092,",
        "a:1, b:2",
        "10.0.0.1:9092",
        "[::1]:9092",
        "::1",
        "SASL_SSL://a_b.c:1",
    ],
)
def test_addresses_that_the_client_library_takes_are_taken(load: Load, servers: str) -> None:
    assert load(f"kafka: {{bootstrap.servers: '{servers}'}}").bootstrap_servers == servers


def test_a_login_in_an_address_is_not_shown(load: Load) -> None:
    for servers in ("user:secret@kafka:9092", "http://user:secret@kafka:9092/"):
        said = refusal(load, f"kafka: {{bootstrap.servers: '{servers}'}}")
        assert ("secret" in said, "kafka:9092" in said) == (False, True)


def test_a_choice_on_the_command_line_beats_the_environment_and_the_file(load: Load) -> None:
    settings = load(
        "admin: {port: 1, host: 10.0.0.1}\n",
        "admin.port=3",
        "admin.port=4",
        DELAY_PROXY_ADMIN__PORT="2",
    )
    assert (settings.admin.port, settings.admin.host) == (4, "10.0.0.1")


def test_choices_are_yaml_and_add_to_a_section(load: Load) -> None:
    settings = load(
        "kafka: {security.protocol: SSL}\nrelease: {per_target: {a: 1}}\n",
        "levels=1s 2m",
        "targets.allow=orders,bills",
        "release.per_target.My.Topic=5",
        'retry.groups.g={policy: custom, delays: "1s"}',
        "kafka.sasl.password=0123=x: y",
        "kafka.bootstrap.servers=a:1,b:2",
    )
    assert settings.levels_ms == (1_000, 120_000)
    assert settings.targets.allow == ("orders", "bills")
    assert settings.release.per_target == {"a": 1, "My.Topic": 5}
    assert settings.retry.groups["g"].delays_ms == (1_000,)
    assert settings.kafka["sasl.password"] == "0123=x: y"
    assert settings.kafka["security.protocol"] == "SSL"
    assert settings.bootstrap_servers == "a:1,b:2"


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        (
            "log.levle=debug",
            "`--set log.levle` is not a setting. The nearest known key is `log.level`",
        ),
        ("log.level", "`--set log.level` has no value."),
        ("=1", "`--set =1` has no value."),
        ("log.level=", "`--set log.level`: `log.level`"),
        ("log.level=loud", "`--set log.level`: `log.level` is 'loud': must be"),
        ("log=loud", "`--set log`: `log` is 'loud': must have keys"),
        ("levels=[1s", "The value of `--set levels` is not YAML."),
        ("wheel.slots=010", "a number with a leading zero"),
        ("log.level.deep=1", "`--set log.level.deep` is not a setting."),
        ("kafka.bootstrap.servers= ", "`--set kafka.bootstrap.servers`: "),
    ],
)
def test_a_wrong_choice_is_refused_by_its_name(load: Load, chosen: str, found: str) -> None:
    assert found in refusal(load, "log: {level: info}\n", chosen, DELAY_PROXY_LOG__LEVEL="debug")


def test_a_password_in_a_refused_choice_is_not_shown(load: Load) -> None:
    said = refusal(load, "", "kafka.sasl.pasword", "kafka.sasl.password=hunter2\n[")
    assert "hunter2" not in said


def test_a_fault_of_other_settings_is_not_put_down_to_a_choice(load: Load) -> None:
    said = refusal(load, "levels: soon\n", "log.level=debug")
    assert "line 1: `levels`" in said
    assert "--set" not in said


@pytest.mark.parametrize(
    "unsafe",
    [
        "colour: 'red; background: url(//x)'",
        "colour: '#fff'",
        "colour: teal",
        "environment: '<b>'",
        "docs_url: 'javascript:alert(1)'",
        "runbook_url: 'https://a.example/\"onclick'",
        "docs_url: //a.example",
    ],
)
def test_a_setting_that_is_written_into_the_page_is_checked(load: Load, unsafe: str) -> None:
    with pytest.raises(SettingsError):
        load(f"admin: {{{unsafe}}}")


def test_an_environment_has_a_name_and_a_colour(load: Load) -> None:
    admin = load("admin: {environment: prod eu-1, colour: '#B3261e'}").admin
    assert (admin.environment, admin.colour) == ("prod eu-1", "#B3261e")
