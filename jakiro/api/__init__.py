"""OpenAI's interface over HTTP: requests, answers, and an application that a page mounts or `jakiro serve` runs.

Needs the extra [api]: starlette, uvicorn, pydantic.
"""
