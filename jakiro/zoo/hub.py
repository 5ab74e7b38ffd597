"""Why something did not come from the Hugging Face Hub, in one sentence that says what to do."""


def why_not_fetched(what: str, source: str, error: BaseException) -> str:
    """The sentence for a failed download or load.

    Args:
        what: "target model" or "draft head".
        source: its Hub id or folder.
        error: what was raised; transformers wraps the Hub's own errors, so its causes count too.
    """
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    causes = list(_causes(error))
    if any(isinstance(cause, GatedRepoError) for cause in causes):
        return (
            f"The {what} {source} could not be loaded: it is gated; ask for access on https://huggingface.co/{source}, "
            "then run “hf auth login” here with an account that has it."
        )
    if any(isinstance(cause, RepositoryNotFoundError) for cause in causes):
        return (
            f"The {what} {source} could not be loaded: the Hugging Face Hub has no such model, or it is private; check "
            "the name, and for a private one run “hf auth login” here."
        )
    # An ordinary ValueError: its advice is to pass this argument
    if "trust_remote_code" in str(error):
        return (
            f"The {what} {source} could not be loaded: it needs Python code of its own, which Jakiro never runs; "
            "choose a model whose architecture and tokenizer transformers has."
        )
    reason = " ".join(str(error).split()).split(". ")[0].rstrip(".")
    if "connect" in reason.lower():
        reason = "the Hugging Face Hub can't be reached and the files aren't in its local cache"
    return f"The {what} {source} could not be loaded: {reason}."


def _causes(error: BaseException | None):
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
