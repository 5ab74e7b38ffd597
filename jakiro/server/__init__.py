"""OpenAI-compatible API over HTTP: an application that the page mounts and the command `serve` runs.

Needs the extra [api]: starlette, uvicorn, pydantic.
"""
