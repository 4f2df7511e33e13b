"""The features of Gateway API that are served, by their names in its conformance suite, for GatewayClass statuses.

A feature is claimed only while the suite's tests for it pass (`make conformance`); docs/conformance.md lists those not
claimed, and why.
"""

SUPPORTED = tuple(
    sorted(
        {
            "BackendTLSPolicy",
            "BackendTLSPolicySANValidation",
            "GRPCRoute",
            "GRPCRouteNamedRouteRule",
            "GRPCRouteRequestHeaderModifier",
            "Gateway",
            "GatewayAddressEmpty",
            "GatewayBackendClientCertificate",
            "GatewayFrontendClientCertificateValidation",
            "GatewayHTTPListenerIsolation",
            "GatewayHTTPSListenerDetectMisdirectedRequests",
            "GatewayPort8080",
            "GatewayRouteHostnameIntersectionPrecedence",
            "GatewayStaticAddresses",
            "HTTPRoute",
            "HTTPRoute303RedirectStatusCode",
            "HTTPRoute307RedirectStatusCode",
            "HTTPRoute308RedirectStatusCode",
            "HTTPRouteBackendProtocolH2C",
            "HTTPRouteBackendProtocolWebSocket",
            "HTTPRouteBackendRequestHeaderModification",
            "HTTPRouteBackendTimeout",
            "HTTPRouteBackendURLRewrite",
            "HTTPRouteCORS",
            "HTTPRouteDestinationPortMatching",
            "HTTPRouteHostRewrite",
            "HTTPRouteMethodMatching",
            "HTTPRouteNamedRouteRule",
            "HTTPRouteParentRefPort",
            "HTTPRoutePathRedirect",
            "HTTPRoutePathRewrite",
            "HTTPRoutePortRedirect",
            "HTTPRouteQueryParamMatching",
            "HTTPRouteRequestMirror",
            "HTTPRouteRequestMultipleMirrors",
            "HTTPRouteRequestPercentageMirror",
            "HTTPRouteRequestTimeout",
            "HTTPRouteResponseHeaderModification",
            "HTTPRouteRetry",
            "HTTPRouteRetryBackendTimeout",
            "HTTPRouteRetryCodes",
            "HTTPRouteRetryConnectionError",
            "HTTPRouteSchemeRedirect",
            "ListenerSet",
            "ReferenceGrant",
        }
    )
)
