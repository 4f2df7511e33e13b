"""A folder of manifests as a source: for a bare host it replaces the API server of a cluster.

source         the thread: passes what has changed in the folder to the store
hints          the kernel's notices that something has changed
folder         which files there are, and which have changed
scalars        plain YAML scalars, as the API server reads them
manifests      bytes of a file to documents, with the line of every place in them
admission      a document to an object, with the API server's schema, defaults and rules
reading        all files to one object per name, and all problems
surroundings   objects that a cluster has without a manifest
lastgood       last good versions of objects that are broken now; kept in the status folder
ledger         what the API server would remember: uid, generation, creation time; kept in the status folder
statuses       statuses, as one YAML file per object
schema         what objects may look like
"""
