"""The data plane of the tunnel gateway: requests from ports and the tunnel, routed by one document."""
