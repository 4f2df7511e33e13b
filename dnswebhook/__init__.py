"""The webhook provider that external-dns calls to keep records on a UniFi network controller.

A request passes through bytes -> app -> wire -> provider -> adjust or plan -> store; its response returns through wire.
From top to bottom:

    __main__ > cli > daemon · commands      what a command line starts: the daemon, or an answer for a person
    options · metrics · readiness           what can be set, what is counted, whether the store can be used
    app > mediatypes                        HTTP: routes, bodies and media types in, status codes out
    openapi                                 the same as OpenAPI files, and the structs made of them
    provider > flights · deadline           the four operations: one writer, shared listings, an end to every wait
    adjuster > adjust > fit                 endpoints as the store will list them, and what it cannot hold
    listings > records                      rows as record sets, and their bytes
    wire                                    JSON <-> the values of `model`
    plan > difference > wishes              which writes are needed, and in which order, as `operations`
    claims · chains · past · opennotes      what a plan must respect: owners, CNAMEs, earlier calls and their notes
    apply > writers                         carries a plan out, strands in parallel
    leftovers > journal · notes             what a failed or killed apply can leave behind: noted, and removed later
    removals                                rows that a store has confirmed to be removed, and may list again
    ownership · canonical · domains         external-dns's TXT records; one spelling of all names; which we may write
    served                                  what a store serves now
    stores                                  where records are kept
    model · errors                          the values that all others use
"""
