"""OpenAI's interface over HTTP: requests, answers, and an application that a page mounts or the command `serve` runs.

Needs the extra [api]: starlette, uvicorn, pydantic.
"""
