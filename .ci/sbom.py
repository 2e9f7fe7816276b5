"""Writes the software bill of materials of the wheel: numalab.cdx.json, in CycloneDX 1.6.

    python .ci/sbom.py [TARGET]

Versions and hashes are those of requirements.lock, licenses and dependencies those of the installed
packages. The same inputs give the same bytes: there is no time, and the serial number is a digest.
"""

import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import License, LicenseAcknowledgement
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
BOM = "numalab.cdx.json"
LOCK = "requirements.lock"
# What requirements.lock has beside the dependencies of the wheel.
EXTRA = "libvirt"
# The lock is for Debian 12, whatever this runs on.
_ENVIRONMENT = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.11.2",
    "python_version": "3.11",
    "sys_platform": "linux",
}
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)((?: \\\n +--hash=sha256:[0-9a-f]{64})+)$", re.M)


class StaleLock(Exception):
    """The lock file, pyproject.toml and the installed packages do not fit together."""


@dataclass(frozen=True)
class Pinned:
    """A line of a lock file: a version, and the SHA-256 of every file that may be installed."""

    name: str
    version: str
    sha256: tuple[str, ...]


def read_lock(text: str) -> dict[str, Pinned]:
    """Return the packages of a lock file by their names. Raises StaleLock for any other line."""
    lines = _PINNED.sub("", re.sub(r"^ *#.*\n", "", text, flags=re.M)).split()
    if lines:
        raise StaleLock(f"{LOCK} has a line without a version and hashes: {lines[0]}")
    pinned = (
        Pinned(name, version, tuple(re.findall(r"sha256:(\w+)", hashes)))
        for name, version, hashes in _PINNED.findall(text)
    )
    return {canonicalize_name(pin.name): pin for pin in pinned}


def render_bom(project: Mapping[str, Any], lock: Mapping[str, Pinned]) -> str:
    """Return the bill of materials. `project` is the table of that name in pyproject.toml.

    Raises StaleLock where the lock lacks a dependency, has a package that nothing depends on, or
    pins another version than the one that is installed.
    """
    optional = project["optional-dependencies"][EXTRA]
    needed = _closure(lock, project["dependencies"])
    whole = _closure(lock, [*project["dependencies"], *optional])
    if spare := lock.keys() - whole.keys():
        raise StaleLock(f"{LOCK} has packages that nothing needs: {', '.join(sorted(spare))}")
    bom = Bom(serial_number=_serial(project, lock))
    root = _root(project)
    bom.metadata.component = root
    components = {
        name: _component(lock[name], required=name in needed) for name in sorted(lock.keys())
    }
    for component in components.values():
        bom.components.add(component)
    direct = _names([*project["dependencies"], *optional])
    bom.register_dependency(root, [components[name] for name in direct])
    for name, below in whole.items():
        bom.register_dependency(components[name], [components[package] for package in below])
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string()
    document = json.loads(text)
    del document["metadata"]["timestamp"]  # the library always writes one
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def main(target: Path) -> None:
    """Write the bill of materials of this checkout to `target`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lock = read_lock((ROOT / LOCK).read_text(encoding="utf-8"))
    target.write_text(render_bom(project, lock), encoding="utf-8")


def _closure(lock: Mapping[str, Pinned], wanted: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return every package that `wanted` needs, and the packages that it needs itself."""
    required: dict[str, tuple[str, ...]] = {}
    queue = list(_names(wanted))
    while queue:
        name = queue.pop()
        if name in required:
            continue
        if name not in lock:
            raise StaleLock(f"{LOCK} lacks {name}")
        installed = metadata.distribution(name)
        if installed.version != lock[name].version:
            raise StaleLock(
                f"{LOCK} has {name} {lock[name].version}, but {installed.version} is installed"
            )
        required[name] = _names(installed.requires or ())
        queue += required[name]
    return required


def _names(requirements: Iterable[str]) -> tuple[str, ...]:
    """Return the packages that are required on Debian 12, without those of extras."""
    parsed = [Requirement(text) for text in requirements]
    environment: dict[str, str] = {**_ENVIRONMENT, "extra": ""}
    return tuple(
        canonicalize_name(requirement.name)
        for requirement in parsed
        if requirement.marker is None or requirement.marker.evaluate(environment)
    )


def _root(project: Mapping[str, Any]) -> Component:
    return Component(
        name=project["name"],
        version=project["version"],
        type=ComponentType.APPLICATION,
        bom_ref=project["name"],
        purl=PackageURL("pypi", name=project["name"], version=project["version"]),
        licenses=[_license(project["license"]["text"])],
    )


def _component(pinned: Pinned, *, required: bool) -> Component:
    """Render a package; the hashes are of the files of its release, as the lock has them."""
    purl = PackageURL("pypi", name=canonicalize_name(pinned.name), version=pinned.version)
    files = ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(f"https://pypi.org/project/{purl.name}/{purl.version}/#files"),
        comment="the files that requirements.lock accepts",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in pinned.sha256],
    )
    return Component(
        name=purl.name,
        version=purl.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{purl.name}=={purl.version}",
        purl=purl,
        scope=ComponentScope.REQUIRED if required else ComponentScope.OPTIONAL,
        licenses=[_license(_declared_license(pinned.name))],
        external_references=[files],
    )


def _declared_license(name: str) -> str:
    """Return what a package's metadata says: an SPDX expression, a short text or a classifier."""
    about = metadata.metadata(name).json
    classifiers = about.get("classifier", ())
    licenses = [
        classifier.rpartition(" :: ")[2]
        for classifier in classifiers
        if classifier.startswith("License ::")
    ]
    text = str(about.get("license", "")).strip()
    short = text if len(text.splitlines()) == 1 else ""
    license_text = about.get("license_expression") or short or " and ".join(licenses)
    if not license_text:
        raise StaleLock(f"the metadata of {name} names no license")
    return str(license_text)


def _license(text: str) -> License:
    declared = LicenseAcknowledgement.DECLARED
    return LicenseFactory().make_from_string(text, license_acknowledgement=declared)


def _serial(project: Mapping[str, Any], lock: Mapping[str, Pinned]) -> uuid.UUID:
    """Return a serial number that changes with the wheel's version and with the lock."""
    facts = [project["version"], *(repr(lock[name]) for name in sorted(lock))]
    return uuid.uuid5(uuid.NAMESPACE_URL, "\n".join(facts))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / BOM)
