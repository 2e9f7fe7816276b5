"""The origin of each line of a configuration, and why an option was refused. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from numalab.kernel.config.kconfig import Option, Refusal
from numalab.kernel.config.kconfig_tree import Definition, KconfigTree, is_met, unmet


@dataclass(frozen=True)
class Origin:
    """One line of a configuration: the origin of its value, and the reason in a fragment."""

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
    """Return the origin of each line of a configuration, in its order.

    Options that are off are left out, unless a fragment sets them. `tiny` maps options to the file
    of the source's own tiny configuration that sets them.
    """
    by_name = {option.name: option for option in options}
    plain = _plain(config)
    lines = []
    for name, value in config.items():
        option = by_name.get(name)
        if option is not None:
            place = f"{option.fragment}.config:{option.line}"
            lines.append(Origin(name, value, place, option.reason))
        elif value != "n":
            lines.append(Origin(name, value, _origin(name, plain, tiny, tree)))
    return tuple(lines)


def explain_refusal(
    refusal: Refusal, config: Mapping[str, str], tree: KconfigTree, version: str
) -> str:
    """Explain why an option has another value: no such option, or an unmet dependency."""
    name, wanted = refusal.option.name.removeprefix("CONFIG_"), refusal.option.value
    plain = _plain(config)
    definitions = tree.definitions.get(name)
    if definitions is None:
        return (
            f"Linux {version} has no such option; if others have it, let its reason begin with"
            ' "Since X.Y:" or "Until X.Y:"'
        )
    if refusal.actual not in (None, "n"):
        by = _selector(name, plain, tree)
        return f"the configuration has {refusal.actual} instead" + (f", {by}" if by else "")
    reasons = filter(None, (_why_off(definition, plain, tree) for definition in definitions))
    if text := "; ".join(dict.fromkeys(reasons)):
        return f"the configuration refused it: {text}"
    return f"the configuration refused {wanted}, for no reason that its files show"


def _origin(
    name: str, config: Mapping[str, str], tiny: Mapping[str, str], tree: KconfigTree
) -> str:
    if name in tiny:
        return tiny[name]
    short = name.removeprefix("CONFIG_")
    places = ", ".join(definition.place for definition in tree.definitions.get(short, ()))
    return _selector(short, config, tree) or f"default of {places or 'kbuild'}"


def _selector(name: str, config: Mapping[str, str], tree: KconfigTree) -> str:
    selectors = [
        selector
        for selector, condition in tree.selected_by.get(name, ())
        if config.get(selector, "n") != "n" and (condition is None or is_met(condition, config))
    ]
    return f"selected by {', '.join(selectors[:3])}" if selectors else ""


def _why_off(definition: Definition, config: Mapping[str, str], tree: KconfigTree) -> str:
    """Explain why a definition cannot be switched on; "" if it can."""
    conditions = [*definition.depends, *filter(None, [definition.shown])]
    failing = [condition for condition in conditions if not is_met(condition, config)]
    if failing:
        reasons = []
        for condition in failing:
            names = [f"{name}={config.get(name, 'n')}" for name in unmet(condition, config)]
            reasons.append(
                f"it depends on {condition}" + f", with {', '.join(names)}" * bool(names)
            )
        return f"{', '.join(reasons)} ({definition.place})"
    if not definition.prompt:
        selectors = [selector for selector, _ in tree.selected_by.get(definition.name, ())]
        setters = ", ".join(selectors[:5]) or "its default"
        return f"only {setters} can set it ({definition.place})"
    if definition.choice is not None:
        return f"another option of the choice in {definition.choice} is selected"
    return ""


def _plain(config: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix("CONFIG_"): value for name, value in config.items()}
