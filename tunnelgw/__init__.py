"""The Gateway API controller: objects in, the proxy's document, the tunnel's hostnames and statuses out."""
