"""Certificates made with OpenSSL's command line for one test run, so that none expires."""

from __future__ import annotations

import subprocess
from pathlib import Path

_CONFIG = """
[ca]
default_ca = made
[made]
database = {folder}/index.txt
new_certs_dir = {folder}
rand_serial = yes
default_md = sha256
policy = any
unique_subject = no
copy_extensions = copy
[any]
commonName = supplied
[req]
distinguished_name = name
[name]
"""
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """A certificate authority in its own folder. `ca` is its certificate."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._config = folder / "openssl.cnf"
        self._config.write_text(_CONFIG.format(folder=folder))
        (folder / "index.txt").touch()
        self.ca = folder / "ca.pem"
        self._key = folder / "ca.key"
        more = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        self._run(
            "req", "-x509", *_KEY, "-subj", "/CN=Tests", "-days", "2", "-keyout", self._key, "-out", self.ca, *more
        )

    def issue(self, name: str, *, host: str = "IP:127.0.0.1", start: str = "", end: str = "") -> Path:
        """Return a file with a certificate and its key (PEM). start, end: `YYYYMMDDHHMMSSZ`; default: valid now."""
        key, asked, made, whole = (self._folder / f"{name}.{kind}" for kind in ("key", "csr", "crt", "pem"))
        self._run(
            "req", *_KEY, "-subj", f"/CN={name}", "-addext", f"subjectAltName={host}", "-keyout", key, "-out", asked
        )
        dates = ["-startdate", start or "20200101000000Z", "-enddate", end or "20991231000000Z"]
        self._run(
            *("ca", "-batch", "-notext", "-cert", self.ca, "-keyfile", self._key, "-in", asked, "-out", made), *dates
        )
        whole.write_bytes(made.read_bytes() + key.read_bytes())
        return whole

    def _run(self, command: str, *arguments: str | Path) -> None:
        words = ["openssl", command, "-config", str(self._config), *map(str, arguments)]
        subprocess.run(words, check=True, capture_output=True)
