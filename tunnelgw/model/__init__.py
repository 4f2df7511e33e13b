"""The objects that the controller knows, as frozen values.

What the API server holds is decoded into these structs once, when it arrives. Unknown fields are ignored, so that newer
API versions do not stop us. Enumerations (types, kinds, modes) stay plain text, so that an unknown value leads to a
verdict on its object, and not to an object that cannot be read.

    part · meta · refs · conditions     what all kinds share
    gateways · routes · policies        Gateway API
    core                                Kubernetes' own kinds
    own                                 the kinds of tunnelgw.dev
    kinds                               every kind with its group, version, plural and struct
    statuses                            what is read from a stored status
    snapshot                            all objects at one moment, with the indexes that translation uses
"""
