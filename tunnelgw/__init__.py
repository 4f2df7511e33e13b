"""The Gateway API controller. Not part of this release yet: CHANGELOG.md says what is."""
