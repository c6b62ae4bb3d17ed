#!/usr/bin/env python3
"""Installation of the other programs in the bench: the source of each, and its installation.

    install.py DIRECTORY            installs missing programs; built ones go to DIRECTORY/bin

Debian's packages by apt-get (without starting services), Rust's by `cargo install` (wstunnel from
its own repository), Go's from `peers/go.mod`, which pins them. A program that cannot be installed is
reported but is not an error: the bench names it in its report. Versions are the newest of the
registries at that time, and the report names them.
"""
import os, shutil, subprocess, sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# A program, or a file, and the Debian package that contains it.
DEBIAN = {"wrk": "wrk", "h2load": "nghttp2-client", "curl": "curl", "openssl": "openssl", "nginx": "nginx-light", "haproxy": "haproxy",
          "/usr/sbin/sshd": "openssh-server", "ssh": "openssh-client", "strace": "strace", "ip": "iproute2", "unshare": "util-linux",
          "/usr/lib/nginx/modules/ngx_stream_module.so": "libnginx-mod-stream", "/usr/lib/nginx/modules/ngx_nchan_module.so": "libnginx-mod-nchan"}
CARGO = {"bore": ["bore-cli"], "rathole": ["rathole"],
         "wstunnel": ["--git", "https://github.com/erebe/wstunnel", "--tag", "v10.6.2", "--locked", "wstunnel-cli"]}     # in no registry
GO = {"chisel": "github.com/jpillora/chisel", "frps": "github.com/fatedier/frp/cmd/frps", "frpc": "github.com/fatedier/frp/cmd/frpc"}


def have(what, own):
    return Path(what).exists() if what.startswith("/") else bool(shutil.which(what) or (own / what).exists())


def attempt(name, cmd, **kw):
    print(f"    {name}: {' '.join(map(str, cmd))}", flush=True)
    if subprocess.run(cmd, **kw).returncode:
        print(f"    {name}: not to be had here; the report will name it", flush=True)


def main(directory):
    own = directory / "bin"
    own.mkdir(parents=True, exist_ok=True)
    packages = sorted({p for what, p in DEBIAN.items() if not have(what, own)})
    if packages and shutil.which("apt-get"):
        sudo = ["sudo"] if os.geteuid() else []
        attempt("packages", [*sudo, "apt-get", "update", "-qq"])
        # Services of packages are not started while this policy exists.
        policy, ours = Path("/usr/sbin/policy-rc.d"), not Path("/usr/sbin/policy-rc.d").exists()
        if ours:
            subprocess.run([*sudo, "sh", "-c", f"printf '#!/bin/sh\\nexit 101\\n' > {policy} && chmod 755 {policy}"])
        for p in packages:
            attempt(p, [*sudo, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-qq", "--yes", "--no-install-recommends", p])
        if ours:
            subprocess.run([*sudo, "rm", "-f", str(policy)])
    for program, package in CARGO.items():
        if not have(program, own):
            build = dict(os.environ, CARGO_TARGET_DIR=str(directory / "build"))
            attempt(program, ["cargo", "install", "--root", str(directory), *package], env=build, cwd=directory)
    shutil.rmtree(directory / "build", ignore_errors=True)
    go = shutil.which("go") or next((p for p in ("/usr/local/go/bin/go",) if Path(p).exists()), None)
    for program, package in GO.items():
        if not have(program, own):
            if go:
                attempt(program, [go, "build", "-trimpath", "-o", f"{own}/", package], cwd=HERE / "peers")
            else:
                print(f"    {program}: no Go toolchain here; the report will name it")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
