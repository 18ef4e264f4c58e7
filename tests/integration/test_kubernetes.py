"""deploy/kubernetes: rendered as `kubectl apply -k` renders it, held against Kubernetes' and KEDA's own schemas, and safe for jobs."""

import json
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import kubernetes_validate
import pytest
import yaml
from cloudcoil.models.keda import v1alpha1 as keda

from settings.load import load_settings
from settings.schema import Settings
from tests.acceptance.fleet import BIN, KEYS, ROOT
from tests.guarded import rights

HERE: Final = ROOT / "deploy" / "kubernetes"
RENDERED: Final = ("base", "examples/triton-service", "examples/triton-sidecar")
EXAMPLES: Final = RENDERED[1:]
VERSIONS: Final = ("1.30", "1.37")
"""The oldest and the newest Kubernetes whose schemas it is held against."""
KUBECTL: Final = shutil.which("kubectl", path=str(BIN)) or shutil.which("kubectl")
NAME: Final = "app.kubernetes.io/name"
KEDA_KINDS: Final[Mapping[str, Any]] = {
    "ScaledObject": keda.ScaledObject,
    "TriggerAuthentication": keda.TriggerAuthentication,
}

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="no kubectl for this machine")

Manifest = dict[str, Any]


@cache
def rendered(directory: str) -> tuple[Manifest, ...]:
    """The objects of a directory."""
    command = [str(KUBECTL), "kustomize", str(HERE / directory)]
    made = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return tuple(yaml.safe_load_all(made.stdout))


def one(directory: str, kind: str, name: str = "speedinfer-worker") -> Manifest:
    """The one object of this kind and name."""
    (found,) = (each for each in rendered(directory) if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


def pod_of(directory: str, name: str = "speedinfer-worker") -> Manifest:
    """The specification of a Deployment's pods."""
    spec: Manifest = one(directory, "Deployment", name)["spec"]["template"]["spec"]
    return spec


def pods(directory: str) -> Iterator[Manifest]:
    """Those of all Deployments."""
    return (each["spec"]["template"]["spec"] for each in rendered(directory) if each["kind"] == "Deployment")


def settings_of(directory: str, tmp_path: Path) -> Settings:
    """The settings that a pod's configuration makes, with its secrets where a test can have them."""
    name = next(v["configMap"]["name"] for v in pod_of(directory)["volumes"] if "configMap" in v)
    (text,) = one(directory, "ConfigMap", name)["data"].values()
    for item in ("worker-password", "ca.crt"):
        (tmp_path / item).write_text("secret\n")
    file = tmp_path / "worker.json"
    file.write_text(text.replace("/etc/speedinfer/redis", str(tmp_path)))
    return load_settings(file, {}, hostname="speedinfer-worker-6d5f7c9b8-x2x4z")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("directory", RENDERED)
def test_kubernetes_takes_every_object(directory: str, version: str) -> None:
    """No unknown field, no missing one, none of another type."""
    objects = [each for each in rendered(directory) if each["kind"] not in KEDA_KINDS]
    assert {each["kind"] for each in objects} >= {"Deployment", "PodDisruptionBudget", "NetworkPolicy", "ConfigMap"}
    for each in objects:
        kubernetes_validate.validate(each, version, strict=True)


def test_the_schemas_would_notice_a_mistake() -> None:
    """A misspelt field and a wrong type."""
    for change in ({"terminationGracePeriod": 5}, {"terminationGracePeriodSeconds": "soon"}):
        wrong = json.loads(json.dumps(one("base", "Deployment")))
        wrong["spec"]["template"]["spec"] |= change
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("directory", EXAMPLES)
def test_keda_takes_its_objects(directory: str) -> None:
    """Read by types made from its definitions and written again, nothing is lost: no field is unknown to them."""
    objects = [each for each in rendered(directory) if each["kind"] in KEDA_KINDS]
    assert {each["kind"] for each in objects} == set(KEDA_KINDS)
    for each in objects:
        read = KEDA_KINDS[each["kind"]].model_validate(each)
        assert json.loads(read.model_dump_json(by_alias=True, exclude_none=True)) == each


@pytest.mark.parametrize("directory", RENDERED)
def test_no_running_job_is_cut_off(directory: str, tmp_path: Path) -> None:
    """An inference is over before the drain is, and the drain before the pod is killed, with time to put the rest back."""
    settings = settings_of(directory, tmp_path)
    grace = pod_of(directory)["terminationGracePeriodSeconds"]
    assert all(
        settings.runtime_for(name).timeout_seconds < settings.drain_seconds for name in settings.supported_models
    )
    assert grace >= settings.drain_seconds + 15


@pytest.mark.parametrize("directory", RENDERED)
def test_the_configuration_is_the_pods(directory: str, tmp_path: Path) -> None:
    """It is read from where it is mounted, names the pod, and comes by TLS as the worker's user with a mounted password."""
    settings = settings_of(directory, tmp_path)
    (worker,) = pod_of(directory)["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in worker["volumeMounts"]}
    (variable,) = worker["env"]
    assert variable == {"name": "SPEEDINFER_CONFIG", "value": f"{mounts['config']}/worker.json"}
    assert settings.worker_id == "speedinfer-worker-6d5f7c9b8-x2x4z"
    url = urlsplit(settings.redis_url.get_secret_value())
    assert (url.scheme, url.username, url.password) == ("rediss", "speedinfer-worker", "secret")
    assert "ssl_ca_certs=" in url.query


@pytest.mark.parametrize("directory", RENDERED)
def test_probes_ask_where_the_worker_answers(directory: str, tmp_path: Path) -> None:
    """The port of its metrics; alive is not ready."""
    (worker,) = pod_of(directory)["containers"]
    (port,) = worker["ports"]
    probes = {name: worker[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert settings_of(directory, tmp_path).metrics_address == f"0.0.0.0:{port['containerPort']}"
    assert {probe["port"] for probe in probes.values()} == {port["name"]}
    assert [probe["path"] for probe in probes.values()] == ["/healthz", "/healthz", "/readyz"]


@pytest.mark.parametrize("directory", RENDERED)
def test_everything_is_unprivileged(directory: str) -> None:
    """No root, no capability, nothing to write to but what is mounted for it, and no token of the cluster."""
    for pod in pods(directory):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        for container in [*pod["containers"], *pod.get("initContainers", ())]:
            context = container["securityContext"]
            assert (context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"]) == (True, False)
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert "limits" in container["resources"]


@pytest.mark.parametrize("directory", RENDERED)
def test_the_network_is_closed_but_for_what_is_named(directory: str) -> None:
    """Both ways, for the worker's pods; one of them at a time may be moved."""
    policy = one(directory, "NetworkPolicy")["spec"]
    labels = one(directory, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert [[list(end.values()) for end in rule["from"]] for rule in policy["ingress"]] == [
        [[{"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}]]
    ]
    asked = [end["podSelector"]["matchLabels"] for rule in policy["egress"] for end in rule["to"]]
    assert asked == [{"k8s-app": "kube-dns"}, {NAME: "valkey"}, {NAME: "triton"}]
    assert one(directory, "Deployment")["spec"]["selector"]["matchLabels"].items() <= labels.items()
    budget = one(directory, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("directory", EXAMPLES)
def test_workers_are_scaled_by_queued_and_running_work(directory: str, tmp_path: Path) -> None:
    """Every queue, what waits and what runs are added up, by the keys of the contract; a worker is worth its concurrency."""
    settings = settings_of(directory, tmp_path)
    spec = one(directory, "ScaledObject")["spec"]
    lists = {trigger["name"]: trigger["metadata"]["listName"] for trigger in spec["triggers"]}
    queues = {KEYS.jobs(model) for model in settings.supported_models}
    assert set(lists.values()) == queues | {KEYS.waiting, KEYS.running}
    modifiers = spec["advanced"]["scalingModifiers"]
    assert {name.strip() for name in modifiers["formula"].split("+")} == set(lists)
    assert (modifiers["target"], modifiers["metricType"]) == (str(settings.concurrency), "AverageValue")
    assert spec["scaleTargetRef"]["name"] == one(directory, "Deployment")["metadata"]["name"]
    assert "replicas" not in one(directory, "Deployment")["spec"]
    assert {"eval", "evalsha", "type", "llen", "hlen", "zcard"} <= rights("scaler")


def test_the_service_is_the_one_that_workers_ask(tmp_path: Path) -> None:
    """By its name and port; only workers reach it."""
    endpoint = urlsplit(settings_of("examples/triton-service", tmp_path).runtime_endpoint)
    service = one("examples/triton-service", "Service", "triton")["spec"]
    assert endpoint.hostname == "triton"
    assert endpoint.port in {port["port"] for port in service["ports"]}
    policy = one("examples/triton-service", "NetworkPolicy", "triton")["spec"]
    assert [rule["from"] for rule in policy["ingress"]] == [
        [{"podSelector": {"matchLabels": {NAME: "speedinfer-worker"}}}]
    ]


def test_the_sidecar_outlives_the_worker(tmp_path: Path) -> None:
    """It starts before and ends after it, which only a restarted init container does; nobody else reaches it."""
    (triton,) = pod_of("examples/triton-sidecar")["initContainers"]
    assert triton["restartPolicy"] == "Always"
    assert "startupProbe" in triton
    assert "--http-address=127.0.0.1" in triton["args"]
    assert settings_of("examples/triton-sidecar", tmp_path).runtime_endpoint == "http://127.0.0.1:8000"


@pytest.mark.parametrize("directory", RENDERED)
def test_the_image_is_of_this_version(directory: str) -> None:
    """What is deployed is what is here."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    (worker,) = pod_of(directory)["containers"]
    assert worker["image"].endswith(f"speedinfer-triton-worker:{version}")
