"""Write docs/settings.md from fastes.settings.settings. Run by `make docs`; a test compares the file with what this makes."""

from __future__ import annotations

from dataclasses import MISSING
from pathlib import Path

from fastes.settings.preset_loader import all_presets
from fastes.settings.settings import grouped_fields

HEAD = """# Settings

Every field is a keyword of `FastES(env, ...)` and a flag of `fastes train` (`population_size` is `--population-size`;
`policy_kwargs` has `--net-arch`, `--activation-fn`, `--use-bias`, `--action-mapping` and `--num-bins`). Defaults apply where
the environment's preset says nothing. This page is made by `make docs`.
"""


def page() -> str:
    lines = [HEAD]
    group = ""
    for item in grouped_fields():
        if item.metadata["group"] != group:
            group = item.metadata["group"]
            lines += [f"\n## {group.capitalize()}\n", "| setting | type | default | meaning |", "|---|---|---|---|"]
        default = item.default if item.default is not MISSING else {}
        kind = str(item.type).replace("ScheduleSetting", "schedule").replace("|", "or")
        lines.append(f"| `{item.name}` | {kind} | `{default!r}` | {item.metadata['help'].replace('|', '/')} |")
    lines.append("\n## Presets\n\n`preset=` (flag `--preset`) takes a name; by default an environment gets its own.\n")
    for name, preset in all_presets().items():
        rest = ", ".join(f"`{key} = {value!r}`" for key, value in preset.items() if key != "source")
        lines.append(f"- **{name}**: {rest}. {preset.get('source', '')}".rstrip())
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("settings.md").write_text(page(), encoding="utf-8")
