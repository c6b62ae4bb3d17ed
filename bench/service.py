"""The service behind every tunnel, and the contenders' certificates, keys and tokens."""
import base64, hashlib, hmac, json, os, shutil, sys
from pathlib import Path

from isolate import ENGINE, NAMES, scratch
from processes import Proc, run, wait_port

HERE = Path(__file__).resolve().parent
PLAIN, TLS, UDP, WS = 20080, 20443, 20053, 20090
NEAR, FAR = "10.77.0.1", "10.77.0.2"        # both ends of the network with distance
SECRET = "0123456789abcdef0123456789abcdef"


def pki():
    """Certificates of one authority for all names, ssh keys, and tokens."""
    d = scratch() / "pki"
    if d.exists():
        return d
    d.mkdir()
    names = ",".join([f"DNS:{n}" for n in NAMES] + [f"DNS:*.t.{ENGINE}", "DNS:*.localhost"] + [f"IP:{a}" for a in ("127.0.0.1", NEAR, FAR)])
    (d / "names").write_text(f"subjectAltName={names}\nbasicConstraints=CA:FALSE\n")
    key = "openssl ecparam -name prime256v1 -genkey -noout"
    run(f"cd {d} && {key} -out ca.key && openssl req -x509 -new -key ca.key -subj '/CN=bench CA' -days 30 -out ca.pem && "
        f"{key} | openssl pkcs8 -topk8 -nocrypt -out key.pem && openssl req -new -key key.pem -subj /CN={ENGINE} -out csr && "
        "openssl x509 -req -in csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile names -out cert.pem && "
        "cat cert.pem key.pem > both.pem && openssl pkcs12 -export -passout pass:bench -inkey key.pem -in cert.pem -out id.p12 && "
        f"{key} | openssl pkcs8 -topk8 -nocrypt -out es256.key && openssl pkey -in es256.key -pubout -out es256.pub && "
        "openssl genrsa -out rs.pem 2048 && openssl rsa -in rs.pem -pubout -out rs.pub")
    (d / "hs256.jwt").write_text(jwt("HS256", b"bench-secret"))
    (d / "rs256.jwt").write_text(jwt("RS256", str(d / "rs.pem")))
    if shutil.which("ssh-keygen"):
        run(f"cd {d} && ssh-keygen -q -t ed25519 -N '' -f ssh_host && ssh-keygen -q -t ed25519 -N '' -f ssh_user && "
            "mkdir users && cp ssh_user.pub users/ && cp ssh_user.pub authorized_keys && chmod 600 authorized_keys")
    if shutil.which("svc"):
        mint = ["svc", "token", "mint", "--ttl", "1d", "--user", "bench"]
        for name, how in {"agent": ["--secret", SECRET, "--type", "pat"], "visitor-hs256": ["--secret", SECRET, "--type", "pat"],
                          "visitor-es256": ["--key-file", str(d / "es256.key"), "--type", "pat"]}.items():
            (d / f"{name}.jwt").write_text(run(mint + how).stdout.decode().strip())
    return d


def jwt(alg, key):
    """A token for the proxies, which check a signature and an expiry."""
    b = lambda x: base64.urlsafe_b64encode(x).rstrip(b"=")
    m = b(json.dumps({"alg": alg, "typ": "JWT"}).encode()) + b"." + b(json.dumps(
        {"sub": "bench", "exp": 4102444800, "resources": {"tunnels": {"projects": ["p1"]}}}).encode())
    s = hmac.new(key, m, hashlib.sha256).digest() if alg == "HS256" else run(["openssl", "dgst", "-sha256", "-sign", key], input=m).stdout
    return (m + b"." + b(s)).decode()


def files(mib):
    """Files for downloads: `blob` with this number of MiB, and `part`, an eighth of it."""
    www = scratch() / "www"
    for d in ("up", "tmp"):
        (www / d).mkdir(parents=True, exist_ok=True)
    for name, size in (("blob", mib), ("part", mib // 8)):
        with open(www / name, "wb") as f:
            for _ in range(size):
                f.write(os.urandom(1 << 20))
    return www


def start(prefix=(), name="service"):
    """nginx with responses of about 130 bytes, downloads and uploads; echoes of datagrams and of WebSocket
    messages. `prefix` is a command that starts them elsewhere.
    """
    d, p, www = scratch(), pki(), scratch() / "www"
    own = d / name
    own.mkdir(exist_ok=True)
    (own / "nginx.conf").write_text(f"""
daemon off; worker_processes 2; pid {own}/pid; error_log {own}/err; user root;
events {{ worker_connections 8192; }}
http {{ access_log off; keepalive_requests 100000000; sendfile on; tcp_nopush on; default_type application/octet-stream;
 client_body_temp_path {www}/tmp; client_max_body_size 0; client_body_buffer_size 256k;
 proxy_temp_path {own}/p; fastcgi_temp_path {own}/f; uwsgi_temp_path {own}/u; scgi_temp_path {own}/s;
 ssl_certificate {p}/cert.pem; ssl_certificate_key {p}/key.pem; ssl_protocols TLSv1.3;
 server {{ listen {PLAIN} backlog=4096; listen {TLS} ssl http2 backlog=4096;
  location / {{ return 200 "hello from the service behind the tunnel; this body is about one hundred and twenty eight bytes long, give or take.\\n"; }}
  location = /blob {{ root {www}; }} location = /part {{ root {www}; }}
  location /up/ {{ root {www}; dav_methods PUT; }} }} }}
""")
    begin = lambda cmd, log: Proc("agent", [*prefix, *cmd], str(own), own / log)
    procs = [begin(["nginx", "-c", str(own / "nginx.conf"), "-e", str(own / "err")], "nginx.log"),
             begin([sys.executable, str(HERE / "udp.py"), "echo", str(UDP)], "udp.log")]
    if shutil.which("bench-tools"):
        procs.append(begin(["bench-tools", "ws-echo", f"127.0.0.1:{WS}"], "ws.log"))
    if not wait_port(PLAIN, (FAR,) if prefix else ("127.0.0.1",)):
        sys.exit(f"the service did not start: {(own / 'nginx.log').read_text()} {(own / 'err').read_text()}")
    return procs
