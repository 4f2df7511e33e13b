"""`tunnelgw explain`: which Gateway, listener, route and rule a request would get, why, and what would happen to it.

The answer comes from the proxy's own routing code, with the document that the proxy would get.
"""

from proxy.commands.explain import Question
from proxy.commands.explain import explain as explain_in_document
from proxy.commands.sources import SourceError
from tunnelgw.commands import show
from tunnelgw.commands.inputs import CannotAnswer, Inputs
from tunnelgw.translate.pipeline import Translation


def explain(inputs: Inputs, controller_name: str, home_namespace: str, question: Question, *, as_json: bool) -> bool:
    """Returns whether a route would take the request at every entrance. Raises CannotAnswer if there is none."""
    documents = Translation(inputs.snapshot, controller_name, home_namespace).documents
    refusals: list[str] = []
    answers: list[bool] = []
    for plane in sorted(documents):
        if not documents[plane].settings.listeners:  # the proxy's code would suppose a tunnel that serves every host
            refusals.append(f"data plane {plane}: no listener can be reached; `tunnelgw status` says why, or `check`")
            continue
        try:
            answers.append(explain_in_document(documents[plane].encode(0), question, as_json=as_json))
        except SourceError as error:
            refusals.append(f"data plane {plane}: {error}")
    if not answers:
        raise CannotAnswer("; ".join(refusals) or "there is no data plane")
    for refusal in (*refusals, *inputs.problems, *inputs.skipped):
        show.note(f"tunnelgw explain: {refusal}")
    return all(answers)
