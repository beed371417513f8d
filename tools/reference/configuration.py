"""The page of all settings, from their table and from what is said of each in ``Config``."""

from __future__ import annotations

import ast
import inspect
import itertools

from meshnode import cli, config
from meshnode.config import SETTINGS, Change, Setting
from meshnode.domain.checks import AboveZero, Between
from tools.reference.tables import code, prose, sentence, table

GROUPS = {"training": "TrainingConfig", "resources": "ResourcesConfig", "chain": "ChainConfig"} | {
    "pipeline": "PipelineConfig",
    "limits": "LimitsConfig",
    "": "Config",
}
MACHINES = {
    "data_dir": "`~/.local/share/meshnode`",
    "resources.cpu_threads": "the cores that the node may use",
}
"""Defaults that depend on the machine, in words."""
CHANGES = {
    Change.HIDDEN: "",
    Change.NEVER: "shown",
    Change.LIVE: "at once",
    Change.RESTART: "at the next start",
}
OWN_VARIABLES = (
    ("MESHNODE_CONFIG", "the TOML file, as `--config`"),
    ("MESHNODE_KEY_PASSPHRASE", "seals all key files; a node with sealed files needs it to start"),
    ("MESHNODE_GATEWAY", "the node that commands for users of a chain ask"),
    ("MESHNODE_NETWORK", "the network descriptor of these commands"),
    ("MESHNODE_KEY", "the key file of these commands"),
    ("NO_COLOR", "no colours on a terminal"),
)


def meanings() -> dict[str, str]:
    """What is said of each setting below its field in the classes of ``meshnode.config``."""
    said: dict[str, str] = {}
    for group, name in GROUPS.items():
        prefix = f"{group}." if group else ""
        (node,) = ast.parse(inspect.getsource(getattr(config, name))).body
        body = node.body if isinstance(node, ast.ClassDef) else []
        for field, text in itertools.pairwise(body):
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                said[prefix + field.target.id] = prose(str(text.value.value))
    return said


def flags() -> dict[str, str]:
    """The flag of each setting that has one."""
    found = {}
    for setting in SETTINGS:
        flag = setting.key.removesuffix("_url").replace(".", "-").replace("_", "-")
        if flag in cli.FLAGS:
            found[setting.key] = f"--{flag}"
    return found


def _default(setting: Setting) -> str:
    if setting.key in MACHINES:
        return MACHINES[setting.key]
    if isinstance(setting.default, bool):
        return code(str(setting.default).lower())
    return code(setting.default) or "none"


def _valid(setting: Setting) -> str:
    if setting.kind is bool:
        return "`true` or `false`"
    if isinstance(setting.check, Between):
        return f"{setting.check.low} to {setting.check.high}"
    if isinstance(setting.check, AboveZero):
        return f"above 0, at most {setting.check.high}"
    reason = setting.check("\0") or ""
    return reason.partition(": '")[0].removeprefix("must be ").removeprefix("must ")


def page() -> str:
    """The page. Raises LookupError for a setting of which the code says nothing."""
    said, flag_of = meanings(), flags()
    silent = [setting.key for setting in SETTINGS if setting.key not in said]
    if silent:
        raise LookupError(f"no words below the fields of {', '.join(silent)} in meshnode/config.py")
    rows = [
        (
            "<br>".join(
                code(name)
                for name in (setting.key, flag_of.get(setting.key, ""), setting.variable)
                if name
            ),
            _default(setting),
            _valid(setting),
            CHANGES[setting.change],
            sentence(said[setting.key]),
        )
        for setting in SETTINGS
    ]
    head = ("key, flag, variable", "default", "values", "change", "meaning")
    return (
        "# Configuration\n\n"
        "A later source wins: defaults, the TOML file (`--config FILE`), changes through "
        "`PATCH /api/v1/config`, variables,\nflags ([decision 0003]"
        "(../../decisions/0003-where-settings-come-from.md)). A key with a dot is in a table of "
        "the file:\n`training.batch_size` is `batch_size` under `[training]`. `GET "
        "/api/v1/config` shows the settings with an entry in\nthe column of changes, which says "
        "when a change through `PATCH` has its effect.\n\n"
        + table(head, rows)
        + "\n## Variables that are no settings\n\n"
        + table(("variable", "meaning"), [(code(name), text) for name, text in OWN_VARIABLES])
    )
