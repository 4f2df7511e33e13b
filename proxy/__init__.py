"""The data plane of the tunnel gateway. Not part of this release yet: CHANGELOG.md says what is."""
