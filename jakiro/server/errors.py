"""An error in place of an answer, in OpenAI's form."""

from starlette.responses import JSONResponse

INVALID, LIMITED, FAILED = "invalid_request_error", "rate_limit_error", "server_error"


class Refusal(Exception):
    """One sentence with an HTTP status.

    Args:
        param: the field that it is about. code: a name of the case, where OpenAI has one.
        seconds: after which asking again makes sense.
    """

    def __init__(
        self, status: int, sentence: str, param: str | None = None, code: str | None = None, seconds: int | None = None
    ) -> None:
        super().__init__(sentence.encode(errors="replace").decode())
        self.status, self.param, self.code, self.seconds = status, param, code, seconds

    def to_dict(self) -> dict:
        kind = LIMITED if self.status == 429 else FAILED if self.status >= 500 else INVALID
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        headers = {} if self.seconds is None else {"retry-after": str(self.seconds)}
        return JSONResponse(self.to_dict(), self.status, headers)
