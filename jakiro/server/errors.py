"""Errors in OpenAI's format."""

from starlette.responses import JSONResponse

INVALID, LIMITED, FAILED = "invalid_request_error", "rate_limit_error", "server_error"


class Refusal(Exception):
    """An error with an HTTP status.

    Args:
        status: HTTP status.
        message: one sentence.
        param: name of the field that caused it.
        code: OpenAI's name for the error, if there is one.
        seconds: when to retry.
    """

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None, seconds: int | None = None
    ) -> None:
        super().__init__(message.encode(errors="replace").decode())
        self.status, self.param, self.code, self.seconds = status, param, code, seconds

    def to_dict(self) -> dict:
        """Return the body of the response."""
        kind = LIMITED if self.status == 429 else FAILED if self.status >= 500 else INVALID
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        """Return the response."""
        headers = {} if self.seconds is None else {"retry-after": str(self.seconds)}
        return JSONResponse(self.to_dict(), self.status, headers)


def prompt_error(message: str, request) -> Refusal:
    """Return the refusal of a prompt, an answer prefix or a grammar that does not fit the model.

    Args:
        message: the library's error.
        request: a `CompletionRequest`.
    """
    param = None
    if "answer_prefix_ids" in message:
        param = "jakiro.answer_prefix_ids"
    elif message.startswith("Your prompt"):
        param = "prompt" if request.raw else "messages"
    return Refusal(400, message, param)
