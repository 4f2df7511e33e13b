"""`tunnelgw-proxy edge-ca`: writes the edge's root certificates to a file, after checking them."""

import sys
from collections.abc import Sequence
from pathlib import Path

from proxy.options import PROG
from proxy.supervisor.edgetrust import PUBLISHED, PublishedRoot, TrustUnavailable, fetch


def write_roots(out: str, published: Sequence[PublishedRoot] = PUBLISHED) -> bool:
    """Write the roots to the file `out`. Returns False after an error, which is printed on standard error."""
    try:
        roots = fetch(published)
        if out == "-":
            sys.stdout.write(roots)
        else:
            Path(out).write_text(roots, encoding="ascii")
    except TrustUnavailable as error:
        sys.stderr.write(f"{PROG} edge-ca: {error}; run it where there is Internet access, and copy the file\n")
        return False
    except OSError as error:
        sys.stderr.write(f"{PROG} edge-ca: cannot write {out}: {error.strerror}\n")
        return False
    return True
