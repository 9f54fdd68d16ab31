"""The DevStack plugin, run phase by phase on what DevStack gives it: the files that it writes.

Functions of DevStack are stood in for by ``stand_in.sh``; with a checkout of DevStack in
``ACSTOR_TEST_DEVSTACK`` they are its own. Programs that would change this machine are noted.
"""

import configparser
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping

import pytest
import yaml
from oslo_config import cfg

from acstor.conf import loading
from acstor.drivers.ceilometer import options as pollster_options
from acstor.drivers.cinder import options as cinder_options
from testbed.fixtures.documents import ROOT

HERE = pathlib.Path(__file__).parent
PLUGIN = ROOT / "devstack"
SCRIPTS = sorted(
    [PLUGIN / "plugin.sh", PLUGIN / "settings", PLUGIN / "override-defaults", *PLUGIN.glob("lib/*")]
)
DEVSTACK = os.environ.get("ACSTOR_TEST_DEVSTACK", "")
FULL = "key,n-api,n-cpu,n-cond,n-sch,g-api,c-api,c-sch,c-vol,c-bak,rabbit,mysql,etcd3"
COMPUTE = "n-cpu,q-agt"
STACK = ("stack pre-install", "cinder", "stack install", "stack post-config")
WITH_CEILOMETER = f"{FULL},horizon,ceilometer-acompute,ceilometer-anotification"
PANELS = "opt/stack/horizon/openstack_dashboard/local/enabled"
VARIABLES = {
    "DEVSTACK_PLUGINS": "ceilometer,acstor",
    "ACSTOR_LINK_SPEED": "1000",
}
POLLING = "sources: [{name: all_pollsters, interval: 300, meters: ['*']}]\n"
PIPELINE = """\
sources: [{name: meter_source, meters: ['*'], sinks: [meter_sink]}]
sinks: [{name: meter_sink, publishers: ['gnocchi://?filter_project=service']}]
"""
BASH_SECONDS = 60
NOTED = ("apt-get", "cargo", "ceph", "groupadd", "openstack", "systemctl", "usermod")

NOTE = """#!/bin/bash
echo "${0##*/} $*" >>"$SANDBOX/log"
"""
SUDO = """#!/bin/bash
# What is outside of the sandbox is noted and left alone.
echo "sudo $*" >>"$SANDBOX/log"
for word in "${@:2}"; do
    case $word in "$SANDBOX"/*|"$CHECKOUT"/*|-*) ;; /[a-z]*) exit 0 ;; esac
done
exec "$@"
"""
VIRSH = """#!/bin/bash
echo "virsh $*" >>"$SANDBOX/log"
[ "$1" != list ] || printf 'instance-00000001\\nanother\\n'
"""
ACSTOR = f"""#!/bin/bash
# The real one, where there is something to talk to.
echo "acstor $*" >>"$SANDBOX/log"
case $* in *" dataplane status") exit 0 ;; esac
exec {pathlib.Path(sys.executable).parent}/acstor "$@"
"""


class Machine:
    """A machine that DevStack is run on, in a folder."""

    def __init__(self, sandbox: pathlib.Path, devstack: str) -> None:
        self.sandbox = sandbox
        self._devstack = devstack
        stubs, programs = sandbox / "stubs", sandbox / "opt/stack/data/venv/bin"
        for folder in (stubs, programs, self.etc("ceilometer"), self.etc("systemd")):
            folder.mkdir(parents=True)
        for name in NOTED:
            executable(stubs / name, NOTE)
        executable(stubs / "sudo", SUDO)
        executable(stubs / "virsh", VIRSH)
        executable(programs / "acstor", ACSTOR)
        executable(stubs / "uwsgi", NOTE)
        (sandbox / PANELS).mkdir(parents=True)

    def etc(self, path: str) -> pathlib.Path:
        return self.sandbox / "etc" / path

    def run(
        self,
        *phases: str,
        services: str = FULL,
        variables: Mapping[str, str] | None = None,
        is_well: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run phases one after the other, in one shell as stack.sh does."""
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.sandbox), "PYTHON": sys.executable,
            "SANDBOX": str(self.sandbox), "CHECKOUT": str(ROOT), "ENABLED_SERVICES": services,
            **({"DEVSTACK_DIR": self._devstack} if self._devstack else {}), **(variables or {}),
        }  # fmt: skip
        done = subprocess.run(
            ["bash", str(HERE / "machine.sh"), *phases],
            env=environment, capture_output=True, text=True, timeout=BASH_SECONDS, check=False,
            cwd=self.sandbox,
        )  # fmt: skip
        if is_well:
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
            assert "command not found" not in done.stderr, done.stderr
        return done

    def log(self) -> list[str]:
        path = self.sandbox / "log"
        return path.read_text().splitlines() if path.exists() else []

    def options(self, path: str) -> dict[str, dict[str, list[str]]]:
        """Return all values of a file's options, as oslo.config reads them."""
        sections: dict[str, dict[str, list[str]]] = {}
        cfg.ConfigParser(str(self.etc(path)), sections).parse()
        return sections

    def acstor(self) -> cfg.ConfigOpts:
        """Return the configuration as ACStor's programs load and check it."""
        return loading.load("test", ["--config-file", str(self.etc("acstor/acstor.conf"))])


def executable(path: pathlib.Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture(scope="module", params=["stand-in", "devstack"] if DEVSTACK else ["stand-in"])
def devstack(request: pytest.FixtureRequest) -> str:
    """Return DevStack's directory, empty for its stand-in."""
    return DEVSTACK if request.param == "devstack" else ""


@pytest.fixture
def machine(devstack: str, tmp_path: pathlib.Path) -> Machine:
    return Machine(tmp_path, devstack)


@pytest.fixture(scope="module")
def controller(devstack: str, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A machine with everything, after all of stack.sh; what it has is looked at only."""
    machine = Machine(tmp_path_factory.mktemp("controller"), devstack)
    for path, text in {
        "glance/glance-api.conf": (
            "[glance_store]\nfilesystem_store_datadir = /opt/stack/data/glance/images/\n"
        ),
        "nova/nova.conf": "[oslo_messaging_notifications]\ndriver = messagingv2\n",
        "ceilometer/polling.yaml": POLLING,
        "ceilometer/pipeline.yaml": PIPELINE,
        "apparmor.d/abstractions/libvirt-qemu": "# shipped by libvirt\n",
    }.items():
        machine.etc(path).parent.mkdir(parents=True, exist_ok=True)
        machine.etc(path).write_text(text)
    machine.run(*STACK, "stack extra", services=WITH_CEILOMETER, variables=VARIABLES)
    return machine


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_script_is_sound(path: pathlib.Path) -> None:
    subprocess.run(["bash", "-n", str(path)], check=True)
    shellcheck = shutil.which("shellcheck", path=f"{pathlib.Path(sys.executable).parent}:/usr/bin")
    if shellcheck is None:
        pytest.skip("there is no shellcheck")
    check = [shellcheck, "--external-sources", "--shell=bash", str(path)]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_settings_enable_what_a_machine_needs(machine: Machine) -> None:
    found = machine.run("settings").stdout
    assert "a-dataplane,a-agent,a-registrar,a-policy,a-worker,a-api" in found
    assert "lvm:lvmdriver-1,acstor:acstor" in found
    assert re.search(r'NOVA_FILTERS="ComputeFilter,.*,DataPlaneFilter"', found)
    found = machine.run("settings", services=COMPUTE).stdout
    assert "a-dataplane,a-agent" in found
    assert "a-registrar" not in found
    chosen = "acstor:first,acstor:second"
    found = machine.run("settings", variables={"CINDER_ENABLED_BACKENDS": chosen}).stdout
    assert f'CINDER_ENABLED_BACKENDS="{chosen}"' in found


def test_controller_is_configured(controller: Machine) -> None:
    conf = controller.acstor()
    assert loading.warn_of_unknown(conf) == []
    data = controller.sandbox / "opt/stack/data"
    assert conf.origin.url == f"posix://{data}/acstor/origin"
    assert conf.coordination.backend_url == "etcd3+http://192.0.2.1:2379?api_version=v3"
    assert conf.image_links.nova_config_file == [str(controller.etc("nova/nova-cpu.conf"))]
    assert conf.image_links.enabled
    assert conf.volumes.enabled
    assert not conf.peer.tls_enabled
    assert conf.agent.link_speed == 1000
    assert conf.glance.filesystem_store_datadir == "/opt/stack/data/glance/images"
    written = controller.options("acstor/acstor.conf")
    assert written["keystone"]["password"] == ["p@ss/word"]
    assert written["DEFAULT"]["transport_url"][0].startswith(
        "rabbit://stackrabbit:secret@192.0.2.1"
    )
    assert (controller.etc("acstor/acstor.conf").stat().st_mode & 0o777) == 0o640
    assert (data / "acstor/origin/format").is_file()  # by the program itself
    assert f"setup_develop {ROOT} etcd,mysql" in controller.log()
    assert f"setup_develop {ROOT}/clients" in controller.log()
    assert "create_service_user acstor admin" in controller.log()
    assert conf.captures.enabled


def test_versions_have_databases_an_endpoint_and_a_place_behind_apache(
    controller: Machine,
) -> None:
    data, log = controller.sandbox / "opt/stack/data", controller.log()
    for name in ("acstor", "acstor_flows"):
        assert f"recreate_database {name}" in log
        assert (data / f"{name}.sqlite").stat().st_size > 0, "its tables are made by the program"
    assert [line for line in log if line.endswith("version index rebuild")]
    conf = controller.acstor()
    assert conf.database.connection == f"sqlite:///{data}/acstor.sqlite"
    assert conf.worker.nova_notification_topics == ["versioned_notifications"]
    written = controller.options("acstor/acstor.conf")
    assert written["keystone_authtoken"]["service_type"] == ["acstor"]
    assert written["keystone"]["username"] == ["acstor"]
    assert "get_or_create_service acstor acstor Versions of disks" in log
    url = "http://192.0.2.1/acstor"
    assert [line for line in log if re.fullmatch(f"get_or_create_endpoint acstor .* {url}", line)]
    uwsgi = controller.options("acstor/acstor-api-uwsgi.ini")["uwsgi"]
    assert uwsgi["module"] == ["acstor.wsgi.api:application"]
    assert uwsgi["env"] == [f"ACSTOR_CONFIG={controller.etc('acstor/acstor.conf')}"]
    assert uwsgi["threads"] == ["8"]
    nova = controller.options("nova/nova.conf")["notifications"]
    assert nova == {"notification_format": ["both"], "bdms_in_notifications": ["True"]}


def test_horizon_has_the_panels(controller: Machine) -> None:
    assert f"pip_install {ROOT}/dashboard" in controller.log()
    panels = ROOT / "dashboard/acstor_dashboard/enabled"
    there = sorted(path.name for path in (controller.sandbox / PANELS).iterdir())
    assert there == sorted(path.name for path in panels.glob("_9*.py"))


def test_versions_can_be_left_out(machine: Machine) -> None:
    variables = {"DISABLED_SERVICES": "a-worker,a-api"}
    machine.run(*STACK, services=f"{FULL},horizon", variables=variables)
    written = machine.options("acstor/acstor.conf")
    assert {"database", "worker", "keystone_authtoken"} & set(written) == set()
    assert written["keystone"]["username"] == ["acstor"]
    assert f"setup_develop {ROOT} etcd" in machine.log()
    assert not [line for line in machine.log() if "endpoint" in line or "dashboard" in line]
    assert not list((machine.sandbox / PANELS).iterdir())


def test_options_are_in_the_sample(controller: Machine) -> None:
    sample = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True)
    text = (ROOT / "etc/acstor/acstor.conf.sample").read_text()
    sample.read_string(re.sub(r"^#([a-z_]+ =)", r"\1", text, flags=re.MULTILINE))
    written = controller.options("acstor/acstor.conf")
    del written["keystone_authtoken"]  # keystonemiddleware's
    del written["DEFAULT"]["transport_url"]  # oslo.messaging's
    del written["oslo_middleware"]  # oslo.middleware's
    for group, options in written.items():
        for name in options:
            assert name in sample[group], f"[{group}] {name}"


def test_nova_and_cinder_are_told(controller: Machine) -> None:
    nova = controller.options("nova/nova.conf")
    assert nova["oslo_messaging_notifications"]["driver"] == ["messagingv2", "acstor"]
    assert len(nova["filter_scheduler"]["available_filters"]) == 2
    cinder = controller.options("cinder/cinder.conf")
    assert cinder["oslo_messaging_notifications"]["driver"] == ["acstor"]
    backend = cinder["acstor"]
    known = {option.name for option in cinder_options.OPTIONS}
    assert {name for name in backend if name.startswith("acstor_")} <= known
    assert backend["acstor_origin_url"] == [controller.acstor().origin.url]
    classes = [
        *nova["filter_scheduler"]["available_filters"], *backend["volume_driver"],
        *nova["filter_scheduler"]["weight_classes"][0].split(","),
    ]  # fmt: skip
    for name in (name for name in classes if name.startswith("acstor.")):
        module, _, attribute = name.rpartition(".")
        source = importlib.util.find_spec(module)
        assert source is not None, name
        assert source.origin is not None
        assert f"class {attribute}" in pathlib.Path(source.origin).read_text(), name
    glance = controller.options("glance/glance-api.conf")
    assert glance["oslo_messaging_notifications"]["driver"] == ["messagingv2"]
    assert any(
        "usermod --append --groups acstor-volumes,acstor-images" in line
        for line in controller.log()
    )


def test_configuring_again_changes_nothing(controller: Machine) -> None:
    def lines() -> dict[str, list[str]]:
        # DevStack writes an option that is there several times at the top of its section.
        files = (path for path in (controller.sandbox / "etc").rglob("*") if path.is_file())
        return {str(path): sorted(path.read_text().splitlines()) for path in files}

    before = lines()
    controller.run(*STACK, services=WITH_CEILOMETER, variables=VARIABLES)
    assert lines() == before
    local = controller.etc("apparmor.d/local/abstractions/libvirt-qemu").read_text()
    assert local.count("acstor-volumes") == 1


def test_services_are_units_with_what_the_shipped_ones_say(controller: Machine) -> None:
    started = [
        line.split("@")[1] for line in controller.log() if line.startswith("systemctl start")
    ]
    names = ("dataplane", "agent", "registrar", "policy", "worker")
    assert started == [f"a-{name}.service" for name in (*names, "api")]
    for name in names:
        unit = controller.etc(f"systemd/devstack@a-{name}.service").read_text()
        assert re.search(rf"^ExecStart *= *\S+/acstor-{name} --config-file \S+$", unit, re.M)
        assert re.search(r"^User *= *root$", unit, re.M)
        drop_in = controller.etc(f"systemd/devstack@a-{name}.service.d/acstor.conf").read_text()
        assert "ExecStart" not in drop_in
        assert "\nType=notify\n" in drop_in
        assert not re.search(r"^(User|Group|ProtectHome|RefuseManualStop)=", drop_in, re.M)
    api = controller.etc("systemd/devstack@a-api.service").read_text()
    ini = controller.etc("acstor/acstor-api-uwsgi.ini")
    assert re.search(
        rf"^ExecStart *= *\S+/uwsgi --procname-prefix acstor-api --ini {ini}", api, re.M
    )
    agent = controller.etc("systemd/devstack@a-agent.service.d/acstor.conf").read_text()
    assert "\nSystemCallFilter=@resources @setuid\n" in agent, "captures run QEMU's tools"
    data_plane = controller.etc("systemd/devstack@a-dataplane.service.d/acstor.conf").read_text()
    assert "FileDescriptorStoreMax=512" in data_plane
    assert "Before=devstack@n-cpu.service" in data_plane
    volume = controller.etc("systemd/devstack@c-vol.service.d/acstor.conf").read_text()
    assert volume == "[Service]\nAmbientCapabilities=CAP_DAC_OVERRIDE\n"
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:
        units = sorted(map(str, controller.etc("systemd").glob("devstack@a-*.service")))
        executables = controller.sandbox / "opt/stack/data/venv/bin"
        for name in names:
            executable(executables / f"acstor-{name}", NOTE)
        check = [analyze, "verify", "--man=no", "--recursive-errors=no", *units]
        done = subprocess.run(check, capture_output=True, text=True, check=False, timeout=60)
        ours = [line for line in done.stderr.splitlines() if "devstack@a-" in line]
        assert ours == [], done.stderr


def test_compute_host_of_several_machines(machine: Machine) -> None:
    origin = machine.sandbox / "mounted"
    variables = {
        "ACSTOR_ORIGIN_DIR": str(origin),
        "HOST_IP": "192.0.2.2",
        "ACSTOR_PEER_TLS": "True",
    }
    done = machine.run(*STACK, services=COMPUTE, is_well=False, variables=variables)
    assert done.returncode != 0
    assert "mount the origin" in done.stdout + done.stderr
    origin.mkdir()
    machine.run(*STACK, "stack extra", services=COMPUTE, variables=variables)
    conf = machine.acstor()
    assert loading.warn_of_unknown(conf) == []
    assert conf.peer.cert_file == str(machine.etc("acstor/tls/host.pem"))
    assert conf.peer.advertise_address == "192.0.2.2"
    assert conf.coordination.backend_url.startswith("etcd3+http://192.0.2.1:")
    assert "keystone" not in machine.options("acstor/acstor.conf")
    assert not list(origin.iterdir())
    started = [line for line in machine.log() if line.startswith("systemctl start")]
    assert [line.split("@")[1] for line in started] == ["a-dataplane.service", "a-agent.service"]


def test_origin_in_ceph(machine: Machine) -> None:
    """The controller makes pool and key, and the repository, which is noted: there is no Ceph."""
    executable(machine.sandbox / "opt/stack/data/venv/bin/acstor", NOTE)
    keyring = machine.etc("ceph/ceph.client.acstor.keyring")
    variables = {"ACSTOR_CEPH_POOL": "pool", "CEPH_CONF_DIR": str(keyring.parent)}
    done = machine.run(*STACK, services=COMPUTE, is_well=False, variables=variables)
    assert done.returncode != 0
    assert "from the controller" in done.stdout + done.stderr
    keyring.parent.mkdir()
    keyring.write_text("[client.acstor]\n")
    machine.run(*STACK, variables=variables)
    assert keyring.stat().st_mode & 0o777 == 0o600
    assert machine.acstor().origin.url == "rados://acstor@pool"
    backend = machine.options("cinder/cinder.conf")["acstor"]
    assert backend["acstor_origin_url"] == ["rados://acstor@pool"]
    typed = [line for line in machine.log() if line.startswith(("ceph ", "acstor "))]
    assert typed[0] == "ceph osd pool create pool 8"
    allowed = "osd allow rw pool=pool namespace=acstor.*"
    assert [line for line in typed if line.startswith("ceph auth") and allowed in line] != []
    programs = [line.partition("acstor.conf ")[2] for line in typed if line.startswith("acstor ")]
    assert programs == ["repository init", "database upgrade", "version index rebuild"]
    assert not (machine.sandbox / "opt/stack/data/acstor/origin").exists()


def test_ceilometer_publishes_to_the_policy_service(controller: Machine) -> None:
    found = yaml.safe_load(controller.etc("ceilometer/pipeline.yaml").read_text())
    theirs = yaml.safe_load(PIPELINE)
    for kind in ("sources", "sinks"):
        assert found[kind][:-1] == theirs[kind]
    assert found["sinks"][-1]["publishers"] == [
        "http://ceilometer:p%40ss%2Fword@192.0.2.1:9475/v1/samples?batch=True&timeout=2&max_retries=1"
    ]
    polling = yaml.safe_load(controller.etc("ceilometer/polling.yaml").read_text())
    names = [source["name"] for source in polling["sources"]]
    assert names == ["all_pollsters", "acstor_host", "acstor_instances"]
    conf = controller.acstor()
    assert (conf.ceilometer.listen_address, conf.ceilometer.listen_port) == ("192.0.2.1", 9475)
    assert conf.ceilometer.password == "p@ss/word"
    ours = controller.options("ceilometer/ceilometer.conf")["acstor"]
    assert set(ours) <= {option.name for option in pollster_options.OPTIONS}
    assert ours["host"] == [conf.host]


def test_wheel_needs_no_rust(machine: Machine) -> None:
    wheel = machine.sandbox / "acstor.whl"
    variables = {"ACSTOR_WHEEL": str(wheel)}
    done = machine.run("stack pre-install", is_well=False, variables=variables)
    assert done.returncode != 0
    wheel.touch()
    machine.run("stack pre-install", "stack install", variables=variables)
    assert f"pip_install {wheel}[etcd,mysql]" in machine.log()
    assert f"pip_install {ROOT}/clients" in machine.log()
    assert not [line for line in machine.log() if line.startswith(("cargo", "install_package"))]


def test_unstack_ends_guests_before_their_disks(machine: Machine) -> None:
    machine.run("unstack")
    log = machine.log()
    order = [
        next(number for number, line in enumerate(log) if line.startswith(wanted))
        for wanted in (
            "systemctl stop devstack@a-policy", "systemctl stop devstack@a-agent",
            "systemctl stop devstack@n-cpu", "virsh destroy instance-00000001",
            "systemctl stop devstack@a-dataplane",
        )
    ]  # fmt: skip
    assert order == sorted(order)
    assert "virsh destroy another" not in log


def test_clean_leaves_nothing(machine: Machine) -> None:
    machine.etc("apparmor.d/abstractions").mkdir(parents=True)
    local = machine.etc("apparmor.d/local/abstractions/libvirt-qemu")
    local.parent.mkdir(parents=True)
    local.write_text("# of somebody else\n")
    services = f"{FULL},horizon"
    machine.run(*STACK, "stack extra", services=services)
    machine.run("unstack", "clean", services=services)
    assert not machine.etc("acstor").exists()
    assert not (machine.sandbox / "opt/stack/data/acstor").exists()
    assert not list(machine.etc("systemd").glob("devstack@*"))
    assert local.read_text() == "# of somebody else\n"
    assert not machine.etc("apparmor.d/abstractions/acstor-volumes").exists()
    assert "sudo rm -rf --one-file-system /var/lib/acstor" in machine.log()
    assert not list((machine.sandbox / PANELS).iterdir())
    assert "apache remove acstor-api" in machine.log()
