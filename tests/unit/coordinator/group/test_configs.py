"""A group's own configs hold for it at once, and for as long as they are set."""

from types import SimpleNamespace

from ottla.coordinator.group.consumer.configs import GroupConfigs
from ottla.coordinator.group.consumer.settings import ConsumerSettings, ConsumerSettingsByGroup
from ottla.metadata.keys import ConfigType

NODE = ConsumerSettings(45_000, 5_000, 1_000, 100)


def test_a_groups_configs_come_and_go():
    given = {"g": {"consumer.session.timeout.ms": "50000"}}
    image = SimpleNamespace(
        configured=lambda kind: sorted(given), config=lambda kind, name: given.get(name, {})
    )
    settings = ConsumerSettingsByGroup(NODE)
    configs = GroupConfigs(image, settings)
    configs.take_all()
    assert settings.of("g") == NODE._replace(session_timeout_ms=50_000)
    assert settings.of("h") is NODE
    given["h"] = {"consumer.heartbeat.interval.ms": "7000", "of.another.version": "1"}
    given["h"]["consumer.assignment.interval.ms"] = "0"
    del given["g"]
    configs.take(["g", "h"])
    assert settings.of("g") is NODE
    assert settings.of("h") == NODE._replace(heartbeat_interval_ms=7_000, assignment_interval_ms=0)
    assert ConfigType("group") is ConfigType.GROUP
