"""The bill of materials of the wheel: what requirements.lock has, in the schema of CycloneDX."""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry, Resource

from sbom import BOM, StaleLock, read_lock, render_bom

ROOT = Path(__file__).parents[3]
LOCK = (ROOT / "requirements.lock").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def stored() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((ROOT / BOM).read_text())
    return document


def without(lock: str, package: str) -> str:
    left = re.sub(rf"^{package}==.*\n(    --hash=.*\n)+", "", lock, flags=re.M)
    assert left != lock
    return left


def test_the_stored_one_is_that_of_the_lock() -> None:
    assert (ROOT / BOM).read_text() == render_bom(PROJECT, read_lock(LOCK)), "run: make sbom"


@pytest.mark.parametrize("seed", ["1", "2"])
def test_the_same_lock_gives_the_same_bytes(tmp_path: Path, seed: str) -> None:
    command = [sys.executable, str(ROOT / ".ci/sbom.py"), str(tmp_path / BOM)]
    env = {**os.environ, "PYTHONHASHSEED": seed, "TZ": f"UTC{seed}"}
    subprocess.run(command, check=True, env=env, cwd=tmp_path, timeout=120)
    assert (tmp_path / BOM).read_bytes() == (ROOT / BOM).read_bytes()


def test_it_has_every_package_version_and_hash_of_the_lock() -> None:
    hashes = {
        (component["purl"], tuple(sorted(digest["content"] for digest in files["hashes"])))
        for component in stored()["components"]
        for files in component["externalReferences"]
    }
    blocks = re.split(r"^(?=\S)", LOCK, flags=re.M)[1:]
    assert len(blocks) > 20
    assert hashes == {
        (
            f"pkg:pypi/{block.split()[0].replace('==', '@')}",
            tuple(sorted(re.findall("sha256:([0-9a-f]{64})", block))),
        )
        for block in blocks
    }


def test_every_package_has_a_license_and_is_needed_by_another() -> None:
    document = stored()
    refs = {component["bom-ref"] for component in document["components"]}
    needed = {
        name for component in document["dependencies"] for name in component.get("dependsOn", ())
    }
    assert refs == needed
    assert all(component["licenses"] for component in document["components"])
    optional = [
        component["name"]
        for component in document["components"]
        if component["scope"] == "optional"
    ]
    assert optional == ["libvirt-python"]


def test_it_follows_the_official_schema() -> None:
    validator = official_validator()
    validator.validate(stored())
    wrong = stored()
    wrong["components"][0]["externalReferences"][0]["hashes"][0]["content"] = "no digest"
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(wrong)


def official_validator() -> jsonschema.Draft7Validator:
    """The schemas of CycloneDX 1.6, as cyclonedx-python-lib carries them."""
    folder = resources.files("cyclonedx.schema") / "_res"
    names = [f"{name}.SNAPSHOT.schema.json" for name in ("bom-1.6", "spdx", "jsf-0.82")]
    schemas = {name: json.loads((folder / name).read_text()) for name in names}
    registry: Registry[Any] = Registry().with_resources(
        (f"http://cyclonedx.org/schema/{name}", Resource.from_contents(schema))
        for name, schema in schemas.items()
    )
    return jsonschema.Draft7Validator(schemas[names[0]], registry=registry)


@pytest.mark.parametrize("package", ["meson", "libvirt-python", "pydantic-core"])
def test_a_lock_that_lacks_a_package_is_refused(package: str) -> None:
    with pytest.raises(StaleLock, match=f"lacks {package}"):
        render_bom(PROJECT, read_lock(without(LOCK, package)))


def test_a_lock_with_a_package_that_nothing_needs_is_refused() -> None:
    spare = f"{LOCK}pytest==1.0 \\\n    --hash=sha256:{'0' * 64}\n"
    with pytest.raises(StaleLock, match="packages that nothing needs: pytest"):
        render_bom(PROJECT, read_lock(spare))


def test_a_lock_with_another_version_than_the_installed_one_is_refused() -> None:
    other = re.sub(r"^numpy==\S+", "numpy==1.0", LOCK, flags=re.M)
    with pytest.raises(StaleLock, match=r"has numpy 1\.0, but .* is installed"):
        render_bom(PROJECT, read_lock(other))


@pytest.mark.parametrize(
    "line",
    [
        "surprise==1.0",
        "surprise>=1.0 \\\n    --hash=sha256:" + "0" * 64,
        "surprise @ https://example.org/x.whl",
        "--index-url https://example.org",
        "surprise==1.0 \\\n    --hash=sha256:abc",
    ],
)
def test_a_line_without_a_version_and_hashes_is_refused(line: str) -> None:
    with pytest.raises(StaleLock, match="has a line without a version and hashes"):
        read_lock(f"{LOCK}{line}\n")


@pytest.mark.parametrize("name", ["requirements-build.lock", "requirements-dev.lock"])
def test_the_other_locks_pin_the_same_versions(name: str) -> None:
    lock = read_lock((ROOT / name).read_text())
    dev = read_lock((ROOT / "requirements-dev.lock").read_text())
    assert dev.items() >= lock.items()
    assert dev.items() >= read_lock(LOCK).items()
