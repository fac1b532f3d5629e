"""Risk: what starts a cluster elsewhere has a typing error."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")
FOLDER = Path(__file__).parents[3] / "examples" / "cluster"
SLURM, AWS, KUBERAY = FOLDER / "slurm.sh", FOLDER / "ray-up-aws.yaml", FOLDER / "kuberay.yaml"


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def test_the_folder_has_what_the_page_says() -> None:
    page = (FOLDER.parents[1] / "docs" / "guide" / "clusters.md").read_text(encoding="utf-8")
    assert {path.name for path in FOLDER.iterdir()} == {SLURM.name, AWS.name, KUBERAY.name, "one_machine.py"}
    assert "`examples/cluster/`" in page
    assert all(f"`{path.name}`" in page for path in FOLDER.iterdir())


def test_the_slurm_script_is_bash() -> None:
    subprocess.run(["bash", "-n", str(SLURM)], check=True, timeout=60)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", str(SLURM)], check=True, timeout=60)


def test_ray_up_takes_its_file() -> None:
    """Ray's own schema refuses fields that there are not."""
    jsonschema = pytest.importorskip("jsonschema")
    ray = importlib.util.find_spec("ray")
    if ray is None or not ray.submodule_search_locations:
        pytest.skip("needs ray")
    schema = json.loads((Path(ray.submodule_search_locations[0]) / "autoscaler" / "ray-schema.json").read_text())
    (cluster,) = documents(AWS)
    jsonschema.validate(cluster, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**cluster, "provider_": {}}, schema)
    types = cluster["available_node_types"]
    assert cluster["head_node_type"] in types
    assert types["head"]["resources"]["CPU"] == 0


def test_the_manifest_is_of_one_cluster() -> None:
    cluster, claim, policy = documents(KUBERAY)
    assert [each["kind"] for each in (cluster, claim, policy)] == ["RayCluster", "PersistentVolumeClaim", "NetworkPolicy"]
    head, (workers,) = cluster["spec"]["headGroupSpec"], cluster["spec"]["workerGroupSpecs"]
    images = {group["template"]["spec"]["containers"][0]["image"] for group in (head, workers)}
    assert len(images) == 1, "nodes with other versions are refused"
    (volume,) = head["template"]["spec"]["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    name = cluster["metadata"]["name"]
    assert policy["spec"]["podSelector"]["matchLabels"] == {"ray.io/cluster": name}
    assert head["rayStartParams"]["num-cpus"] == "0"
    assert head["serviceType"] == "ClusterIP", "nothing outside reaches it"
