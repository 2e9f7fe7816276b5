"""Says where each line of a configuration comes from, and why an option was refused. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from numalab.kernel.config.kconfig import Option, Refusal
from numalab.kernel.config.kconfig_tree import Definition, KconfigTree, is_met, unmet


@dataclass(frozen=True)
class Origin:
    """One line of a configuration: where its value comes from, in words, and why it is wanted."""

    name: str
    value: str
    origin: str
    reason: str = ""


def explain_config(
    config: Mapping[str, str],
    options: Sequence[Option],
    tiny: Mapping[str, str],
    tree: KconfigTree,
) -> tuple[Origin, ...]:
    """Say where each line of a resulting configuration comes from, in its order.

    Options that are off are left out, unless they were asked to be. `tiny` has the file of the
    source's own tiny configuration that sets an option.
    """
    asked = {option.name: option for option in options}
    plain = _plain(config)
    lines = []
    for name, value in config.items():
        option = asked.get(name)
        if option is not None:
            place = f"{option.fragment}.config:{option.line}"
            lines.append(Origin(name, value, place, option.reason))
        elif value != "n":
            lines.append(Origin(name, value, _origin(name, plain, tiny, tree)))
    return tuple(lines)


def explain_refusal(
    refusal: Refusal, config: Mapping[str, str], tree: KconfigTree, version: str
) -> str:
    """Say why an option is not what was asked for: no such option, or what it depends on."""
    name, wanted = refusal.option.name.removeprefix("CONFIG_"), refusal.option.value
    plain = _plain(config)
    definitions = tree.definitions.get(name)
    if definitions is None:
        return (
            f"Linux {version} has no such option; if others have it, let its reason begin with"
            ' "Since X.Y:" or "Until X.Y:"'
        )
    if refusal.found not in (None, "n"):
        by = _selector(name, plain, tree)
        return f"the configuration has {refusal.found} instead" + (f", {by}" if by else "")
    why = [_why_off(one, plain, tree) for one in definitions]
    return (
        "the configuration refused it: " + "; ".join(dict.fromkeys(filter(None, why)))
        if any(why)
        else f"the configuration refused {wanted}, for no reason that its files tell"
    )


def _origin(
    name: str, config: Mapping[str, str], tiny: Mapping[str, str], tree: KconfigTree
) -> str:
    if name in tiny:
        return tiny[name]
    short = name.removeprefix("CONFIG_")
    places = ", ".join(one.place for one in tree.definitions.get(short, ()))
    return _selector(short, config, tree) or f"default of {places or 'kbuild'}"


def _selector(name: str, config: Mapping[str, str], tree: KconfigTree) -> str:
    by = [
        who
        for who, condition in tree.selected_by.get(name, ())
        if config.get(who, "n") != "n" and (condition is None or is_met(condition, config))
    ]
    return f"selected by {', '.join(by[:3])}" if by else ""


def _why_off(one: Definition, config: Mapping[str, str], tree: KconfigTree) -> str:
    """Say in words why a definition cannot be switched on; "" where nothing is against it."""
    failing = [each for each in one.depends if not is_met(each, config)]
    if one.shown is not None and not is_met(one.shown, config):
        failing.append(one.shown)
    if failing:
        reasons = []
        for condition in failing:
            names = [f"{name}={config.get(name, 'n')}" for name in unmet(condition, config)]
            reasons.append(
                f"it depends on {condition}" + (f", with {', '.join(names)}" * bool(names))
            )
        return f"{', '.join(reasons)} ({one.place})"
    if not one.prompt:
        by = [who for who, _ in tree.selected_by.get(one.name, ())]
        return f"nobody can set it, only {', '.join(by[:5]) or 'its default'} ({one.place})"
    if one.choice is not None:
        return f"another option of the choice in {one.choice} was taken"
    return ""


def _plain(config: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix("CONFIG_"): value for name, value in config.items()}
