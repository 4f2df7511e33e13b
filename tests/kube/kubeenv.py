#!/usr/bin/env python3
"""Start and stop a throw-away Kubernetes API server (etcd + kube-apiserver) on loopback.

  kubeenv.py up     [--state DIR] [--port N] [--etcd-port N] [--bind IP] [...]
  kubeenv.py down   [--state DIR] [--keep]
  kubeenv.py status [--state DIR]

Only the Python standard library and the `openssl` program are used. Nothing is
looked up outside PATH, the environment (ETCD, KUBE_APISERVER, KUBE_STATE) and
the arguments. `down` stops exactly the processes that `up` started.
"""

import argparse
import base64
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


def log(msg):
    print(f"[kube] {msg}", file=sys.stderr, flush=True)


def find_program(arg, env, name):
    """An explicit argument wins over the environment, that over PATH."""
    cand = arg or os.environ.get(env) or shutil.which(name)
    if not cand or not os.access(cand, os.X_OK):
        sys.exit(f"{name} not found: give --{name}, set {env}, or put it on PATH")
    return str(Path(cand).resolve())


def free_port(ip):
    with socket.socket() as s:
        s.bind((ip, 0))
        return s.getsockname()[1]


# ---------------------------------------------------------------- certificates


def openssl(*args, stdin=None):
    p = subprocess.run(["openssl", *args], input=stdin, capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"openssl {' '.join(args)}: {p.stderr}")
    return p.stdout


def new_key(path):
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(path))
    path.chmod(0o600)


class Authority:
    def __init__(self, pki, days):
        self.pki, self.days = pki, str(days)
        self.key, self.crt = pki / "ca.key", pki / "ca.crt"
        new_key(self.key)
        openssl(
            "req",
            "-x509",
            "-new",
            "-key",
            str(self.key),
            "-subj",
            "/CN=throwaway-ca",
            "-days",
            self.days,
            "-addext",
            "keyUsage=critical,keyCertSign,cRLSign,digitalSignature",
            "-out",
            str(self.crt),
        )

    def issue(self, name, subject, usage, sans=()):
        key, csr, crt, ext = (self.pki / f"{name}.{e}" for e in ("key", "csr", "crt", "ext"))
        new_key(key)
        openssl("req", "-new", "-key", str(key), "-subj", subject, "-out", str(csr))
        lines = ["basicConstraints=CA:FALSE", "keyUsage=critical,digitalSignature", f"extendedKeyUsage={usage}"]
        if sans:
            lines.append("subjectAltName=" + ",".join(sans))
        ext.write_text("\n".join(lines) + "\n")
        openssl(
            "x509",
            "-req",
            "-in",
            str(csr),
            "-CA",
            str(self.crt),
            "-CAkey",
            str(self.key),
            "-CAcreateserial",
            "-days",
            self.days,
            "-extfile",
            str(ext),
            "-out",
            str(crt),
        )
        csr.unlink()
        ext.unlink()
        return crt, key


def make_pki(pki, bind, service_ip, days):
    pki.mkdir(parents=True, exist_ok=True)
    ca = Authority(pki, days)
    sans = [
        "DNS:localhost",
        "DNS:kubernetes",
        "DNS:kubernetes.default",
        "DNS:kubernetes.default.svc",
        "DNS:kubernetes.default.svc.cluster.local",
        "IP:127.0.0.1",
        f"IP:{service_ip}",
    ]
    if bind not in ("127.0.0.1", "0.0.0.0"):
        sans.append(f"IP:{bind}")
    ca.issue("apiserver", "/CN=kube-apiserver", "serverAuth", sans)
    ca.issue("admin", "/O=system:masters/CN=admin", "clientAuth")
    ca.issue("kubelet-client", "/O=system:masters/CN=apiserver-kubelet-client", "clientAuth")
    new_key(pki / "sa.key")
    (pki / "sa.pub").write_text(openssl("pkey", "-in", str(pki / "sa.key"), "-pubout"))


def write_kubeconfig(path, server, pki):
    def b64(p):
        return base64.b64encode(Path(p).read_bytes()).decode()

    # JSON is YAML, so every kubeconfig reader takes this.
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "preferences": {},
                "current-context": "local",
                "clusters": [
                    {"name": "local", "cluster": {"server": server, "certificate-authority-data": b64(pki / "ca.crt")}}
                ],
                "users": [
                    {
                        "name": "admin",
                        "user": {
                            "client-certificate-data": b64(pki / "admin.crt"),
                            "client-key-data": b64(pki / "admin.key"),
                        },
                    }
                ],
                "contexts": [{"name": "local", "context": {"cluster": "local", "user": "admin"}}],
            },
            indent=1,
        )
        + "\n"
    )
    path.chmod(0o600)


# ------------------------------------------------------------------- processes


def proc_start_time(pid):
    """Start time in clock ticks; with the pid it names one process for good."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    rest = stat[stat.rindex(")") + 2 :].split()
    return None if rest[0] == "Z" else int(rest[19])


def spawn(name, argv, state):
    out = open(state / f"{name}.log", "ab")
    p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    return {"name": name, "pid": p.pid, "start": proc_start_time(p.pid), "argv": argv, "_popen": p}


def alive(rec):
    return proc_start_time(rec["pid"]) == rec["start"] is not None


def stop(rec, grace):
    if not alive(rec):
        return
    os.kill(rec["pid"], signal.SIGTERM)
    end = time.monotonic() + grace
    while time.monotonic() < end:
        if not alive(rec):
            return
        time.sleep(0.05)
    if alive(rec):
        log(f"{rec['name']} ignored SIGTERM for {grace}s, killing pid {rec['pid']}")
        os.kill(rec["pid"], signal.SIGKILL)


def rss_mib(pid):
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return round(int(line.split()[1]) / 1024)
    except OSError:
        pass
    return None


def save(state, recs, extra):
    clean = [{k: v for k, v in r.items() if not k.startswith("_")} for r in recs]
    (state / "state.json").write_text(json.dumps({"processes": clean, **extra}, indent=1) + "\n")


def load(state):
    try:
        return json.loads((state / "state.json").read_text())
    except FileNotFoundError:
        return None


def https_get(host, port, path, pki):
    ctx = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    ctx.load_cert_chain(str(pki / "admin.crt"), str(pki / "admin.key"))
    conn = http.client.HTTPSConnection(host, port, context=ctx, timeout=3)
    try:
        conn.request("GET", path)
        r = conn.getresponse()
        return r.status, r.read().decode(errors="replace")
    finally:
        conn.close()


def http_get(host, port, path):
    conn = http.client.HTTPConnection(host, port, timeout=3)
    try:
        conn.request("GET", path)
        r = conn.getresponse()
        return r.status, r.read().decode(errors="replace")
    finally:
        conn.close()


def wait_ready(what, probe, rec, state, seconds):
    end, last = time.monotonic() + seconds, ""
    while time.monotonic() < end:
        if rec["_popen"].poll() is not None:
            tail = (state / f"{rec['name']}.log").read_text(errors="replace")[-3000:]
            raise RuntimeError(f"{what} ended with status {rec['_popen'].returncode}:\n{tail}")
        try:
            status, last = probe()
            if status == 200:
                return
        except OSError as e:
            last = str(e)
        time.sleep(0.1)
    raise RuntimeError(f"{what} not ready after {seconds}s: {last[-800:]}")


# -------------------------------------------------------------------- commands


def cmd_up(a):
    state = Path(a.state).resolve()
    old = load(state)
    if old and any(alive(r) for r in old["processes"]):
        sys.exit(f"already up in {state}; run down first")
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir(parents=True, mode=0o700)
    etcd, apiserver = (
        find_program(a.etcd, "ETCD", "etcd"),
        find_program(a.kube_apiserver, "KUBE_APISERVER", "kube-apiserver"),
    )
    t0 = time.monotonic()
    base, _, _ = a.service_cidr.rpartition("/")
    service_ip = base.rsplit(".", 1)[0] + ".1"
    pki = state / "pki"
    make_pki(pki, a.bind, service_ip, a.cert_days)
    client, peer = a.etcd_port or free_port("127.0.0.1"), free_port("127.0.0.1")
    port = a.port or free_port(a.bind)
    server_host = "127.0.0.1" if a.bind == "0.0.0.0" else a.bind
    recs = []
    try:
        curl, purl = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        recs.append(
            spawn(
                "etcd",
                [
                    etcd,
                    "--name=local",
                    f"--data-dir={state / 'etcd'}",
                    f"--listen-client-urls={curl}",
                    f"--advertise-client-urls={curl}",
                    f"--listen-peer-urls={purl}",
                    f"--initial-advertise-peer-urls={purl}",
                    f"--initial-cluster=local={purl}",
                    "--log-level=warn",
                    "--unsafe-no-fsync",
                ],
                state,
            )
        )
        wait_ready("etcd", lambda: http_get("127.0.0.1", client, "/health"), recs[-1], state, 30)
        argv = [
            apiserver,
            f"--etcd-servers={curl}",
            f"--bind-address={a.bind}",
            f"--secure-port={port}",
            f"--advertise-address={server_host}",
            "--endpoint-reconciler-type=none",
            f"--tls-cert-file={pki / 'apiserver.crt'}",
            f"--tls-private-key-file={pki / 'apiserver.key'}",
            f"--client-ca-file={pki / 'ca.crt'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={pki / 'sa.pub'}",
            f"--service-account-signing-key-file={pki / 'sa.key'}",
            f"--service-cluster-ip-range={a.service_cidr}",
            f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
            f"--kubelet-client-key={pki / 'kubelet-client.key'}",
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged=true",
            "--profiling=false",
            "--v=1",
            *a.apiserver_arg,
        ]
        recs.append(spawn("kube-apiserver", argv, state))
        wait_ready("kube-apiserver", lambda: https_get(server_host, port, "/readyz", pki), recs[-1], state, a.timeout)
        server = f"https://{server_host}:{port}"
        kubeconfig = state / "kubeconfig"
        write_kubeconfig(kubeconfig, server, pki)
        save(state, recs, {"server": server, "kubeconfig": str(kubeconfig)})
    except BaseException:
        for r in reversed(recs):
            stop(r, 5)
        raise
    log(f"ready after {time.monotonic() - t0:.1f}s: {server}")
    print(kubeconfig)


def cmd_down(a):
    state = Path(a.state).resolve()
    st = load(state)
    if not st:
        log(f"nothing recorded in {state}")
        return
    for r in reversed(st["processes"]):
        stop(r, 20 if r["name"] != "etcd" else 10)
    if not a.keep:
        shutil.rmtree(state, ignore_errors=True)
    log("down")


def cmd_status(a):
    st = load(Path(a.state).resolve())
    if not st:
        sys.exit("down")
    rows = [
        {"name": r["name"], "pid": r["pid"], "alive": alive(r), "rss_mib": rss_mib(r["pid"])} for r in st["processes"]
    ]
    print(json.dumps({"server": st["server"], "kubeconfig": st["kubeconfig"], "processes": rows}, indent=1))
    if not all(r["alive"] for r in rows):
        sys.exit(1)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = ap.add_subparsers(dest="cmd", required=True)
    for name, fn in (("up", cmd_up), ("down", cmd_down), ("status", cmd_status)):
        p = sub.add_parser(name)
        p.set_defaults(fn=fn)
        p.add_argument(
            "--state",
            default=os.environ.get("KUBE_STATE") or str(HERE / ".state"),
            help="directory for certificates, data, logs, kubeconfig (wiped by up and down)",
        )
        if name == "up":
            p.add_argument("--etcd", help="program (else $ETCD, else PATH)")
            p.add_argument("--kube-apiserver", help="program (else $KUBE_APISERVER, else PATH)")
            p.add_argument("--bind", default="127.0.0.1")
            p.add_argument("--port", type=int, default=0, help="0: a free one")
            p.add_argument("--etcd-port", type=int, default=0, help="0: a free one")
            p.add_argument("--service-cidr", default="10.96.0.0/16")
            p.add_argument("--cert-days", type=int, default=3)
            p.add_argument("--timeout", type=int, default=120)
            p.add_argument(
                "--apiserver-arg", action="append", default=[], help="one more flag for kube-apiserver (repeat)"
            )
        if name == "down":
            p.add_argument("--keep", action="store_true", help="leave the state directory (logs) behind")
    a = ap.parse_args()
    a.fn(a)


if __name__ == "__main__":
    main()
