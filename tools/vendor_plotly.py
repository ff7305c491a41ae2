"""Lay the bundle of Plotly that the pages carry, or check the one that lies there.

The pages use bars and lines, so they carry the official ``basic`` partial bundle, which is a
quarter of the whole. It is taken from the npm package that ``plotly-basic.json`` names, by npm, in
exactly that version and with exactly that digest; nothing is changed in it.

    python tools/vendor_plotly.py                  fetch the recorded version again and lay it
    python tools/vendor_plotly.py --version 4.2.0  take another one, and record it
    python tools/vendor_plotly.py --check          compare only; exit 1 where a file differs
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ASSETS = Path(__file__).parents[1] / "ttftdoctor" / "pages" / "assets"
RECORD = ASSETS / "plotly-basic.json"
#: Members of the package, and what they are called here.
MEMBERS = {
    "package/plotly-basic.min.js": "plotly-basic.min.js",
    "package/LICENSE": "plotly-basic.LICENSE.txt",
}


def packed(package: str, version: str) -> bytes:
    """The package as npm hands it out."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["npm", "pack", f"{package}@{version}", "--json", "--silent"],
            cwd=folder, check=True, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        (told,) = json.loads(done.stdout)
        return (Path(folder) / told["filename"]).read_bytes()


def integrity_of(data: bytes) -> str:
    """The digest in the form in which npm records it."""
    return "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()


def members(data: bytes) -> dict[str, bytes]:
    """The files that are kept, by their names here."""
    out = {}
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        with tarfile.open(fileobj=file, mode="r:gz") as archive:
            for member, name in MEMBERS.items():
                found = archive.extractfile(member)
                if found is None:
                    raise SystemExit(f"{member} is no file of the package")
                out[name] = found.read()
    return out


def main() -> int:
    """Lay or compare; 1 where something differs."""
    parser = argparse.ArgumentParser(description="Lay or check the bundle of Plotly.")
    parser.add_argument("--version", help="take this version, and record it")
    parser.add_argument("--check", action="store_true", help="compare only")
    asked = parser.parse_args()
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    version = asked.version or record["version"]
    data = packed(record["package"], version)
    integrity = integrity_of(data)
    if asked.version is None and integrity != record["integrity"]:
        print(f"{record['package']} {version} is not what was recorded: {integrity}")
        return 1
    files = members(data)
    digests = {name: hashlib.sha256(text).hexdigest() for name, text in files.items()}
    if asked.check:
        there = {name: (ASSETS / name).read_bytes() for name in files}
        differs = [name for name, text in files.items() if there[name] != text]
        print("\n".join(f"{name} differs" for name in differs) or f"{version}: as recorded")
        return 1 if differs or digests != record["sha256"] else 0
    for name, text in files.items():
        (ASSETS / name).write_bytes(text)
    record |= {"version": version, "integrity": integrity, "sha256": digests}
    RECORD.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(f"{version}: {len(files['plotly-basic.min.js']):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
