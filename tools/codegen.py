"""Generate the Python code of ``proto/`` (interface 2.3 and 4.3).

    python -m tools.codegen           writes the files
    python -m tools.codegen --check   writes nothing, fails when a committed file is stale

For each ``.proto`` file, protoc (grpcio-tools) generates ``meshnode/wire/X_pb2.py`` and ``.pyi``,
and for a file with a service purerpc's plugin generates ``meshnode/rpc/X_grpc.py``; this script
adds a typed ``.pyi`` for the latter. The service code is in ``rpc``, not in ``wire``, because only
``rpc`` may import purerpc.
``_amend_messages`` and ``_amend_service`` change the output, with a reason beside each replacement.
If a replacement no longer applies, the generator has changed, and the run fails.

The same inputs and versions of the generators (``codegen`` extra in pyproject.toml) give the same
bytes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"

# protoc runs the plugin as a program. purerpc's own script cannot be imported on h2 4.4 without the
# adapter's alias, and does not declare support for optional fields. It supports them all the same,
# because it only reads services.
PLUGIN = """\
#!{python}
import io, sys
sys.path.insert(0, {root!r})
from meshnode.rpc import _h2_compat
from purerpc.protoc_plugin import plugin
from google.protobuf.compiler.plugin_pb2 import CodeGeneratorResponse

real = sys.stdout
sys.stdout = io.TextIOWrapper(io.BytesIO())
plugin.main()
response = CodeGeneratorResponse.FromString(sys.stdout.buffer.getvalue())
response.supported_features = CodeGeneratorResponse.FEATURE_PROTO3_OPTIONAL
real.buffer.write(response.SerializeToString())
real.flush()
"""


@dataclass(frozen=True)
class Source:
    """A ``.proto`` file, relative to ``proto/``, and the stem of the modules made from it."""

    proto: str
    stem: str
    has_service: bool = True


SOURCES = (
    Source("abci.proto", "abci", has_service=False),
    Source("line.proto", "line"),
    Source("node.proto", "node"),
    Source("grpc/health/v1/health.proto", "health"),
    Source("grpc/reflection/v1/reflection.proto", "reflection"),
    Source("grpc/reflection/v1alpha/reflection.proto", "reflection_v1alpha"),
)


class Stale(Exception):
    """The generators' output is not what this script expects."""


def generate() -> dict[Path, str]:
    """Return every generated file: its path relative to the repository's root, and its text."""
    made: dict[Path, str] = {}
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        descriptors = _run_protoc(out)
        for source in SOURCES:
            base = source.proto.removesuffix(".proto")
            messages = (out / f"{base}_pb2.py").read_text()
            made[Path(f"meshnode/wire/{source.stem}_pb2.py")] = _amend_messages(messages)
            # A bare Mapping is an error under strict type checking.
            types = (out / f"{base}_pb2.pyi").read_text()
            types = types.replace("_Mapping]", "_Mapping[str, object]]")
            made[Path(f"meshnode/wire/{source.stem}_pb2.pyi")] = types
            if not source.has_service:
                continue
            service = (out / f"{base}_grpc.py").read_text()
            made[Path(f"meshnode/rpc/{source.stem}_grpc.py")] = _amend_service(source, service)
            made[Path(f"meshnode/rpc/{source.stem}_grpc.pyi")] = _service_types(
                source, descriptors[source.proto]
            )
    return made


def _run_protoc(out: Path) -> dict[str, FileDescriptorProto]:
    plugin = out / "protoc-gen-purerpc"
    plugin.write_text(PLUGIN.format(python=sys.executable, root=str(ROOT)))
    plugin.chmod(0o700)
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}"),
        *(f"--python_out={out}", f"--pyi_out={out}", f"--purerpc_out={out}"),
        f"--plugin=protoc-gen-purerpc={plugin}",
        f"--descriptor_set_out={out / 'descriptors'}",
        *(source.proto for source in SOURCES),
    ]
    subprocess.run(command, check=True)
    files = FileDescriptorSet.FromString((out / "descriptors").read_bytes()).file
    return {file.name: file for file in files}


def _replace(text: str, old: str, new: str) -> str:
    if old not in text:
        raise Stale(f"the generated code no longer has {old!r}")
    return text.replace(old, new)


def _amend_messages(text: str) -> str:
    # Other packages in a process may define these messages too (grpcio's own health messages, a
    # client's copy of node.proto), but protobuf's shared pool allows each name only once.
    return _replace(text, "_descriptor_pool.Default()", "_descriptor_pool.DescriptorPool()")


def _amend_service(source: Source, text: str) -> str:
    base = source.proto.removesuffix(".proto")
    # The adapter's own classes replace purerpc's: they enforce deadlines, limits and errors.
    text = _replace(text, "import purerpc\n", "from meshnode.rpc import stubs as purerpc\n")
    # The message modules are in one flat package.
    text = _replace(
        text,
        f"import {base.replace('/', '.')}_pb2 as ",
        f"from meshnode.wire import {source.stem}_pb2 as ",
    )
    # torch raises NotImplementedError too, so an operation that is not offered needs its own error.
    text = _replace(text, "raise NotImplementedError()", "raise purerpc.NotOffered()")
    header = f"# Generated by tools/codegen.py from proto/{source.proto} - do not edit.\n"
    return header + text.rstrip() + "\n"


def _service_types(source: Source, file: FileDescriptorProto) -> str:
    module = f"{source.stem}_pb2"
    lines = [
        f"# Generated by tools/codegen.py from proto/{source.proto} - do not edit.",
        "from collections.abc import AsyncIterator",
        "",
        "from meshnode.rpc import stubs",
        "from meshnode.rpc.channel import Channel",
        f"from meshnode.wire import {module}",
    ]
    for service in file.service:
        lines += ["", f"class {service.name}Servicer(stubs.Servicer):"]
        for method in service.method:
            request = f"{module}.{method.input_type.rsplit('.', 1)[1]}"
            response = f"{module}.{method.output_type.rsplit('.', 1)[1]}"
            argument = f"input_message: {request}"
            if method.client_streaming:
                argument = f"input_messages: AsyncIterator[{request}]"
            # A function that answers with a stream is an async generator, not a coroutine function.
            verb = "def" if method.server_streaming else "async def"
            result = f"AsyncIterator[{response}]" if method.server_streaming else response
            lines.append(f"    {verb} {method.name}(self, {argument}) -> {result}: ...")
        lines += ["    @property", "    def service(self) -> stubs.Service: ...", ""]
        lines.append(f"class {service.name}Stub:")
        for method in service.method:
            request = f"{module}.{method.input_type.rsplit('.', 1)[1]}"
            response = f"{module}.{method.output_type.rsplit('.', 1)[1]}"
            lines.append(f"    {method.name}: stubs.{_kind(method)}[{request}, {response}]")
        lines.append("    def __init__(self, channel: Channel) -> None: ...")
    return "\n".join(lines) + "\n"


def _kind(method: MethodDescriptorProto) -> str:
    client = "Stream" if method.client_streaming else "Unary"
    return client + ("Stream" if method.server_streaming else "Unary")


def main() -> int:
    """Write or check the files; the exit status of a check is 1 if a file is stale."""
    parser = argparse.ArgumentParser(description="Generate the Python code of proto/.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail when stale")
    check: bool = parser.parse_args().check
    stale = []
    for path, text in generate().items():
        target = ROOT / path
        if target.exists() and target.read_text() == text:
            continue
        stale.append(str(path))
        if not check:
            target.write_text(text)
    for name in stale:
        print(f"{'stale' if check else 'written'}: {name}")
    if check and stale:
        print("run: python -m tools.codegen")
        return 1
    print(f"{len(SOURCES)} proto files, {'up to date' if not stale else 'generated'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
