"""Settings of classes and of the controller itself, from the API server to what clients and people see."""

from __future__ import annotations

import requests

from tests.e2e.controller.arena import Arena
from tests.e2e.controller.site import DEADLINE_S
from tests.proxy.site import Proxy, eventually, reserved_port
from tunnelgw.model.kinds import Kind

ADDRESS = "127.0.0.2"


def test_proxy_settings_of_a_class_take_effect_without_a_restart(arena: Arena, proxy: Proxy) -> None:
    with reserved_port(ADDRESS) as port:
        gateway_class = arena.gateway_class(tunnel_id=None, direct=ADDRESS)
        arena.gateway(gateway_class, port=port)
        arena.route("web", "a.example.org")

        def answered() -> tuple[str, str]:
            """The client's redirect, and the request id of the response; the request has one of its own."""
            response = requests.get(
                f"http://{ADDRESS}:{port}//a//b",
                headers={"Host": "a.example.org", "X-Request-Id": "given", "Connection": "close"},
                allow_redirects=False,
                timeout=DEADLINE_S,
            )
            return response.headers["Location"], response.headers["X-Request-Id"]

        with arena.controller(proxies=[proxy]):
            arena.until_programmed()
            location, request_id = answered()
            assert location == f"http://elsewhere.example:{port}/a/b"
            assert request_id != "given"

            proxy_settings = {"mergeSlashes": False, "forwarding": {"trustedProxies": ["127.0.0.0/8"]}}
            arena.cluster.patch(Kind.GATEWAY_CLASS_CONFIG, gateway_class, "", {"spec": {"proxy": proxy_settings}})
            wanted = (f"http://elsewhere.example:{port}//a//b", "given")
            eventually(lambda: answered() == wanted, "the proxy has the settings of the class", DEADLINE_S)

            arena.cluster.patch(Kind.GATEWAY_CLASS_CONFIG, gateway_class, "", {"spec": {"proxy": None}})
            eventually(lambda: answered()[0] == location, "the proxy has its own settings again", DEADLINE_S)


def test_a_certificate_outside_the_secret_namespaces_is_not_resolved_and_one_inside_is_used(
    arena: Arena, proxy: Proxy
) -> None:
    arena.certificate("cert", "a.example.org")
    with reserved_port(ADDRESS) as port:
        tls = {"certificateRefs": [{"name": "cert"}]}
        spec = {
            "gatewayClassName": arena.gateway_class(tunnel_id=None, direct=ADDRESS),
            "listeners": [{"name": "https", "port": port, "protocol": "HTTPS", "tls": tls}],
        }
        arena.cluster.create(Kind.GATEWAY, "gw", spec, arena.namespace)

        with arena.controller("--secret-namespaces", "kube-system", proxies=[proxy]):
            arena.until(Kind.GATEWAY, "gw", "ResolvedRefs", "False")
            (listener,) = arena.read(Kind.GATEWAY, "gw")["status"]["listeners"]
            (told,) = (each["message"] for each in listener["conditions"] if each["type"] == "ResolvedRefs")
            assert told == (
                f"tls.certificateRefs: Secret {arena.namespace}/cert is in a namespace whose Secrets the controller "
                "does not read (see --secret-namespaces)"
            )

        with arena.controller("--secret-namespaces", f"kube-system,{arena.namespace}", proxies=[proxy]):
            arena.until(Kind.GATEWAY, "gw", "ResolvedRefs", "True")
            arena.until_programmed()
