"""Makes a folder for `fedsvm hub --pyodide` of packages on PyPI and npm: `python -m tests.pyodide_folder FOLDER`.

An operator downloads the full distribution of Pyodide instead. This folder is for tests where only package registries
can be reached. The wheel of open-webui carries Pyodide with numpy and pydantic; msgpack is on PyPI; in
place of `cryptography` there is `tests.noble_cryptography`.
"""

from __future__ import annotations

import ast
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

_PYODIDE = "open-webui==0.12.4"
_WHEELS = {"msgpack": "msgpack==1.2.4"}
_NPM = ("@noble/ciphers@2.4.0", "@noble/curves@2.4.0", "esbuild@0.28.2")
_PLATFORM = ("--only-binary=:all:", "--python-version=3.14", "--platform=pyemscripten_2026_0_wasm32", "--platform=any")
_ENTRY = """
import { gcm } from "@noble/ciphers/aes.js";
import { chacha20, chacha20poly1305 } from "@noble/ciphers/chacha.js";
import { ed25519, x25519 } from "@noble/curves/ed25519.js";
globalThis.noble = { gcm, chacha20, chacha20poly1305, ed25519, x25519 };
"""
_STAND_IN = "cryptography-47.0.0+noble-py3-none-any.whl"
_SOURCE = Path(__file__).with_name("noble_cryptography.py")


def make(folder: Path) -> None:
    """Fill a folder. Raises CalledProcessError where a package cannot be downloaded."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        (pyodide,) = _download(_PYODIDE, Path(scratch) / "pyodide")
        with zipfile.ZipFile(pyodide) as archive:
            for name in archive.namelist():
                if "/pyodide/" in name and not name.endswith("/"):
                    (folder / Path(name).name).write_bytes(archive.read(name))
        packed = {name: _download(spec, folder, *_PLATFORM)[-1].name for name, spec in _WHEELS.items()}
        _bundle_noble(Path(scratch) / "noble", folder / "noble.js")
    _pack_stand_in(folder / _STAND_IN)
    lock = json.loads((folder / "pyodide-lock.json").read_text())
    for name, file in {**packed, "cryptography": _STAND_IN}.items():
        digest = hashlib.sha256((folder / file).read_bytes()).hexdigest()
        lock["packages"][name] |= {"file_name": file, "sha256": digest, "depends": []}
    (folder / "pyodide-lock.json").write_text(json.dumps(lock))


def _download(spec: str, folder: Path, *options: str) -> list[Path]:
    before = set(folder.glob("*.whl"))
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), *options, spec]
    subprocess.run(command, check=True)
    name = spec.partition("==")[0].replace("-", "_")
    return sorted(set(folder.glob("*.whl")) - before) or sorted(folder.glob(f"{name}-*.whl"))


def _bundle_noble(scratch: Path, target: Path) -> None:
    scratch.mkdir()
    subprocess.run(["npm", "install", "--silent", "--prefix", scratch, *_NPM], check=True)
    (scratch / "entry.js").write_text(_ENTRY)
    esbuild = scratch / "node_modules" / ".bin" / "esbuild"
    subprocess.run([esbuild, "entry.js", "--bundle", f"--outfile={target.resolve()}"], cwd=scratch, check=True)


def _pack_stand_in(path: Path) -> None:
    """Write the wheel of `noble_cryptography`, under the name of the package whose place it takes."""
    source = _SOURCE.read_text()
    (modules,) = [
        ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MODULES"
    ]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("cryptography/_noble.py", source)
        for module, names in modules.items():
            is_package = any(other.startswith(f"{module}.") for other in modules) or not module
            place = "/".join(filter(None, ["cryptography", *module.split("."), "__init__" if is_package else ""]))
            archive.writestr(f"{place}.py", f"from cryptography._noble import {', '.join(names)}\n" if names else "")
        about = "Metadata-Version: 2.1\nName: cryptography\nVersion: 47.0.0+noble\n"
        archive.writestr("cryptography-47.0.0+noble.dist-info/METADATA", about)
        archive.writestr("cryptography-47.0.0+noble.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("cryptography-47.0.0+noble.dist-info/RECORD", "")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
