"""Build the documentation as a site, and check it (decision 0205).

    python -m tools.site [--out DIR]      builds, with every warning an error
    python -m tools.site --serve [PORT]   serves it on the loopback address afterwards

After Sphinx, every page is read again: each link and each anchor within the site must lead
somewhere, and no page may ask another server for anything.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import subprocess
import sys
from pathlib import Path

from tools.site.checks import faults

ROOT = Path(__file__).resolve().parents[2]
HOME = "docs/index.html"
ENTRY = f'<!doctype html><meta charset="utf-8"><title>meshnode</title>\
<meta http-equiv="refresh" content="0; url={HOME}"><a href="{HOME}">meshnode</a>\n'


def build(out: Path) -> bool:
    """Build into ``out``/html and check what was built; whether nothing was found."""
    pages = out / "html"
    command = [
        *(sys.executable, "-m", "sphinx", "--builder", "html", "--jobs", "auto", "--quiet"),
        "--write-all",  # otherwise navigation in pages that did not change is stale
        *("--nitpicky", "--fail-on-warning", "--keep-going", "--doctree-dir", str(out / "trees")),
        *("--conf-dir", str(Path(__file__).parent), str(ROOT), str(pages)),
    ]
    if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
        return False
    (pages / "index.html").write_text(ENTRY, encoding="utf-8")
    found = faults(pages)
    for fault in found:
        print(fault, file=sys.stderr)
    if not found:
        print(f"{sum(1 for _ in pages.rglob('*.html'))} pages: {pages / 'index.html'}")
    return not found


def serve(pages: Path, port: int) -> None:
    """Serve the pages on the loopback address until interrupted."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(pages))
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        print(f"http://127.0.0.1:{port}/", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


def main() -> int:
    """Build, check and perhaps serve; the exit status is 1 if anything was found."""
    parser = argparse.ArgumentParser(description="Build the documentation as a site.")
    parser.add_argument("--out", type=Path, default=ROOT / "build/site", metavar="DIR")
    parser.add_argument("--serve", type=int, nargs="?", const=8080, metavar="PORT")
    options = parser.parse_args()
    if not build(options.out):
        return 1
    if options.serve is not None:
        serve(options.out / "html", options.serve)
    return 0


if __name__ == "__main__":
    sys.exit(main())
