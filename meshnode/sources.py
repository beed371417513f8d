"""The sources of settings, and their precedence (decision 0003).

The sources are the defaults, the TOML file, changes made through ``PATCH /config`` (kept in the
data folder), ``MESHNODE_*`` variables and flags; a later source wins. An error in a source raises
one StartupError that names the source.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

from meshnode.config import (
    BY_KEY,
    SETTINGS,
    Change,
    Config,
    Setting,
    Value,
    build_config,
    flatten,
    type_names,
    validate_value,
)
from meshnode.domain.errors import InvalidRequest, StartupError

NameOf = Callable[[str], str]

PERSISTED = "settings.json"
"""The file in the data folder that keeps the changes made by ``PATCH /config``."""


def load_config(
    flags: Mapping[str, str],
    environ: Mapping[str, str],
    toml_file: str | None,
    *,
    persisted: bool = True,
) -> Config:
    """Read every source. ``flags`` maps dotted keys to the text given on the command line.

    Without ``persisted``, the changes kept in the data folder are left out.
    """
    file_values = read_toml(Path(toml_file)) if toml_file else {}
    variables = _texts(
        {s.key: environ[s.variable] for s in SETTINGS if s.variable in environ},
        lambda key: BY_KEY[key].variable,
    )
    given = _texts(flags, lambda key: "--" + re.sub("[._]", "-", key.removesuffix("_url")))
    early = build_config({**file_values, **variables, **given})
    kept = read_persisted(Path(early.data_dir) / PERSISTED) if persisted else {}
    values = {**file_values, **kept, **variables, **given}
    # Absolute, so that the paths in the banner work from any folder.
    return build_config({**values, "data_dir": os.path.abspath(early.data_dir)})


def read_toml(path: Path) -> dict[str, Value]:
    """Read the operator's TOML file."""
    try:
        tree = tomllib.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise StartupError(f"cannot read the configuration {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StartupError(f"the configuration {path} is not TOML: {error}") from None
    except RecursionError:
        raise StartupError(f"the configuration {path} is not TOML: nested too deeply") from None
    return checked(str(path), tree)


def read_persisted(path: Path) -> dict[str, Value]:
    """Read the changes that ``PATCH /config`` saved in the data folder; usually there are none."""
    try:
        tree = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise StartupError(f"cannot read {path}: {error.strerror}") from None
    except RecursionError:
        raise StartupError(
            f"{path} is damaged (nested too deeply); remove it to return to defaults"
        ) from None
    except ValueError as error:
        raise StartupError(
            f"{path} is damaged ({error}); remove it to return to defaults"
        ) from None
    if not isinstance(tree, dict):
        raise StartupError(f"{path} is damaged (not an object); remove it to return to defaults")
    values = checked(str(path), tree)
    for key in values:
        if BY_KEY[key].change not in (Change.LIVE, Change.RESTART):
            raise StartupError(f"{path}: {key}: is not a setting that can be changed")
    return values


def checked(source: str, tree: Mapping[str, object]) -> dict[str, Value]:
    """Check all values of one source; StartupError names the source and the first fault."""
    values: dict[str, Value] = {}
    try:
        for key, value in flatten(tree).items():
            setting = BY_KEY.get(key)
            if setting is None:
                raise InvalidRequest(key, "is not a setting")
            values[key] = validate_value(setting, value)
    except InvalidRequest as error:
        raise StartupError(f"{source}: {error}") from None
    return values


def parse_text(setting: Setting, text: str) -> Value:
    """Read ``text``, from a flag or the environment, as a value of ``setting``."""
    value: object = text
    try:
        if setting.kind is bool:
            value = {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        elif setting.kind is not str:
            value = setting.kind(text)
    except (KeyError, ValueError):
        raise InvalidRequest(setting.key, f"must be {type_names[setting.kind]}") from None
    return validate_value(setting, value)


def _texts(values: Mapping[str, str], name_of: NameOf) -> dict[str, Value]:
    parsed: dict[str, Value] = {}
    for setting in SETTINGS:
        if setting.key in values:
            try:
                parsed[setting.key] = parse_text(setting, values[setting.key])
            except InvalidRequest as error:
                raise StartupError(f"{name_of(setting.key)}: {error.reason}") from None
    return parsed
