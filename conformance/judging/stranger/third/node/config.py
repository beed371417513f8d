"""The changeable part of the configuration. Every change is in force at once."""

import asyncio
import copy

import core
from core import CONFIG, fault
from errors import bad, is_int, is_number

RULES = {
    "training.enabled": ("bool", None, None),
    "training.batch_size": ("int", 1, 4096),
    "training.learning_rate": ("number", 1e-9, 1.0),
    "training.diloco_steps": ("int", 1, 100000),
    "resources.max_memory_gb": ("number", 0.25, 4096),
    "resources.cpu_threads": ("int", 1, 256),
}
STARTED = copy.deepcopy(CONFIG)
READS = {"count": 0, "old": None}


def shown():
    if fault("eff-config-old-once") and READS["old"] is not None:
        old, READS["old"] = READS["old"], None
        return old
    if fault("eff-config-flaps"):
        READS["count"] += 1
        if READS["count"] % 3 == 0:
            return STARTED
    if fault("eff-config-reverts") and READS.get("at") and core.now().timestamp() - READS["at"] > 4:
        return STARTED
    return CONFIG


def checked(path, value):
    if path not in RULES:
        raise bad("%s cannot be changed" % path, path)
    kind, least, most = RULES[path]
    if fault("ref-patch-bool-from-text") and kind == "bool" and value in ("true", "false"):
        return value == "true"
    if fault("ref-patch-number-from-text") and kind != "bool" and isinstance(value, str):
        try:
            return int(value) if kind == "int" else float(value)
        except ValueError:
            pass
    if fault("ref-patch-null-ignored") and value is None:
        return CONFIG[path.split(".")[0]][path.split(".")[1]]
    if fault("ref-patch-list-first") and isinstance(value, list) and value:
        value = value[0]
    if fault("ref2-patch-bool-number") and kind == "int" and isinstance(value, bool):
        value = int(value)
    if fault("ref2-patch-fraction-cut") and kind == "int" and isinstance(value, float):
        value = int(value)
    if fault("ref2-patch-enabled-number") and kind == "bool" and value in (0, 1):
        value = bool(value)
    if kind == "bool" and not isinstance(value, bool):
        raise bad("%s is not a bool" % path, path)
    if kind == "int":
        if not is_int(value):
            raise bad("%s is not an integer" % path, path)
        value = int(value)
    if kind == "number" and not is_number(value):
        raise bad("%s is not a number" % path, path)
    if kind != "bool" and not least <= value <= most:
        raise bad("%s is out of range" % path, path)
    return value


def change(body):
    flat, early = [], []
    if fault("rou2-patch-dotted-only"):
        dotted, body = body, {}
        for path, value in dotted.items():
            section, _, key = path.partition(".")
            body.setdefault(section, {})[key] = value
    for section, values in body.items():
        if section not in CONFIG or not isinstance(values, dict):
            raise bad("%s cannot be changed" % section, section)
        for key, value in values.items():
            flat.append(("%s.%s" % (section, key), value))
    READS["old"] = copy.deepcopy(CONFIG)
    READS["at"] = core.now().timestamp()
    fresh = []
    for path, value in flat:
        if fault("ref-patch-keeps-good-keys") and early:
            pass
        try:
            fresh.append((path, checked(path, value)))
        except Exception:
            if fault("ref-patch-success-false-applies"):
                write(fresh)
                return {"success": False, "updated": [], "restart_required": False}
            if fault("ref-patch-keeps-good-keys"):
                write(fresh)
            if fault("ref-patch-resets-on-error"):
                section, key = path.split(".")
                if section in STARTED and key in STARTED[section]:
                    CONFIG[section][key] = STARTED[section][key]
            raise
    if fault("eff-patch-section-replaced"):
        for section in body:
            given = {path for path, value in fresh}
            for key, value in STARTED[section].items():
                if "%s.%s" % (section, key) not in given:
                    CONFIG[section][key] = value
    if fault("eff-patch-second-section-lost"):
        first = fresh[0][0].split(".")[0] if fresh else ""
        fresh_kept = [item for item in fresh if item[0].startswith(first + ".")]
        write(fresh_kept)
    elif fault("eff-patch-rate-rounded"):
        write([(p, round(v, 4) if p.endswith("rate") else v) for p, v in fresh])
    elif fault("eff-patch-threads-first-only"):
        again = any(path.endswith("threads") for path, value in fresh) and core.nth("threads") > 1
        write([item for item in fresh if not (again and item[0].endswith("threads"))])
    else:
        write(fresh)
    updated = [path for path, value in fresh]
    if fault("rel-updated-all-of-section"):
        updated = ["%s.%s" % (s, k) for s in body for k in CONFIG[s]]
    if fault("rel-updated-only-first"):
        updated = updated[:1]
    if fault("rel2-updated-key-only"):
        updated = [path.split(".")[1] for path in updated]
    return {"success": True, "updated": updated, "restart_required": False}


async def change_copy(body):
    """Changes a copy of the configuration, which is then written as a whole."""
    before = copy.deepcopy(CONFIG)
    await asyncio.sleep(0.03)
    out = change(body)
    for section, values in before.items():
        for key, value in values.items():
            if "%s.%s" % (section, key) not in out["updated"]:
                CONFIG[section][key] = value
    return out


def write(items):
    for path, value in items:
        section, key = path.split(".")
        if fault("eff2-patch-false-ignored") and not value:
            continue
        if fault("eff2-patch-memory-whole") and key == "max_memory_gb":
            value = int(value)
        if fault("eff2-patch-batch-power") and key == "batch_size":
            value = 1 << (int(value).bit_length() - 1)
        if fault("eff2-patch-steps-lost") and key == "diloco_steps":
            continue
        CONFIG[section][key] = value
