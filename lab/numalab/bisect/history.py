"""The kernels between a good and a bad one: commits of a repository, or the patches of a series."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from numalab.errors import UserError
from numalab.kernel.kernel_specs import KernelSpec
from numalab.kernel.patch_series import find_series, with_series
from numalab.source import git
from numalab.topology.predict.groups import Construction
from numalab.units import counted

_SHORT = 12  # characters of a commit's id
_NAME = 40  # characters of a base kernel's name


@dataclass(frozen=True)
class Step:
    """A kernel of a history: its short name, what it changes, and the places of its parents."""

    name: str
    title: str
    spec: KernelSpec
    parents: tuple[int, ...] = ()


@dataclass(frozen=True)
class History:
    """A good kernel and the steps from it to the last, which is bad; `key` names it in results."""

    key: str
    good: Step
    steps: tuple[Step, ...]

    @property
    def summary(self) -> str:
        """What it has, in a phrase: `3 steps after 6.12.117`."""
        return f"{counted(len(self.steps), 'step')} after {self.good.title}"


def series_history(base: KernelSpec, text: str) -> History:
    """Return the kernels with 0, 1, ..., all patches of a series on `base` without it.

    Series that `base` has after this one are left out, as they would not apply. Raises UserError.
    """
    series = find_series(text)
    # By digests: of a patched kernel, the text names a copy.
    digests = [find_series(name).info.digest for name in base.series]
    if series.info.digest in digests:
        before = base.series[: digests.index(series.info.digest)]
        base = replace(base, series=before, groups=Construction.NOW)
    whole = with_series(base, text)
    last = len(series.patches)
    specs = [replace(base, series=(*base.series, f"{text}#{n}")) for n in range(1, last)]
    steps = [
        Step(f"patch-{n}", patch.subject, _named(spec, base, f"patch-{n}"), (n - 2,) * (n > 1))
        for n, (patch, spec) in enumerate(zip(series.patches, [*specs, whole], strict=True), 1)
    ]
    good = Step("patch-0", f"{base.name} without the series", _named(base, base, "patch-0"))
    return History(f"{series.name}-{series.info.digest[:_SHORT]}", good, tuple(steps))


def git_history(base: KernelSpec, good: str, bad: str) -> History:
    """Return the commits after `good` up to `bad`: revisions of the repository of `base`.

    Either may name the repository (`git:PATH@REVISION`). Each commit gets the configuration and
    patches of `base`. Raises UserError when `bad` does not come after `good`.
    """
    path, first, last = _revisions(base, good, bad)
    ends = [git.resolve(path, revision, "commit") for revision in (first, last)]
    if not git.is_ancestor(path, ends[0], ends[1]) or ends[0] == ends[1]:
        reason = f"{last} does not come after {first}"
        if git.is_ancestor(path, ends[1], ends[0]):
            reason += "; --good is the older one, also where it is the worse"
        raise UserError(reason, file=path, key="--bad")
    commits = git.commits_between(path, *ends)
    place = {commit.id: number for number, commit in enumerate(commits)}

    def step(commit: str, title: str, parents: Sequence[str]) -> Step:
        spec = replace(base, source=f"{git.PREFIX}{path}@{commit}")
        places = tuple(place[parent] for parent in parents if parent in place)
        return Step(commit[:_SHORT], title, _named(spec, base, commit[:_SHORT]), places)

    key = "-".join(commit[:_SHORT] for commit in ends)
    steps = tuple(step(commit.id, commit.subject, commit.parents) for commit in commits)
    return History(key, step(ends[0], first, ()), steps)


def _revisions(base: KernelSpec, good: str, bad: str) -> tuple[Path, str, str]:
    sources = [git.split_git(text) for text in (good, bad) if text.startswith(git.PREFIX)]
    if not sources and base.source.startswith(git.PREFIX):
        sources = [git.split_git(base.source)]
    if not sources:
        raise UserError(
            f"{base.name} is not built from git; say git:PATH@{good}",
            key="--good",
            choices=["git:PATH@REVISION"],
        )
    if len({path for path, _ in sources}) > 1:
        raise UserError("--good and --bad name two repositories", key="--bad")
    first, last = (
        git.split_git(text)[1] if text.startswith(git.PREFIX) else text for text in (good, bad)
    )
    return sources[0][0], first, last


def _named(spec: KernelSpec, base: KernelSpec, step: str) -> KernelSpec:
    return replace(spec, name=f"{base.name[:_NAME]}-{step}", summary=f"{base.name}, {step}")
