"""A folder of manifests as a source: it does for a bare host what an API server does for a cluster.

source         the thread: what has changed in the folder goes to the store
hints          notices of the kernel that something has changed
folder         which files there are, and which have changed
scalars        plain values of YAML, as the API server reads them
manifests      bytes of a file to documents, with the line of every place in them
admission      a document to an object: schema, defaults and rules as those of the API server
reading        all files to one object per name, and all problems
surroundings   what a cluster has without a manifest
lastgood       last good versions of objects that are broken now; kept in the status folder
ledger         what the API server would remember: uid, generation, time of creation; kept in the status folder
statuses       statuses, as one YAML file per object
schema         what objects may look like
"""
