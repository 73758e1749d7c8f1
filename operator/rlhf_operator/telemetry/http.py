"""What kubelet and Prometheus ask of this process.

| path | says |
|---|---|
| `/healthz` | 200 while looks at jobs get done; 503 and why, when they do not |
| `/readyz` | 200 when this replica works with all it needs, or stands by |
| `/metrics` | Prometheus metrics |
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

Check = Callable[[], Sequence[str]]
"""What is wrong now; empty when nothing is."""


def health_app(*, alive: Check, ready: Check) -> web.Application:
    """Answers the probes."""
    app = web.Application()
    app.router.add_get("/healthz", _probe(alive))
    app.router.add_get("/readyz", _probe(ready))
    return app


def metrics_app(registry: CollectorRegistry) -> web.Application:
    """Answers Prometheus."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    return app


async def serve(app: web.Application, *, port: int) -> web.AppRunner:
    """Listen on all addresses; `cleanup()` of what is returned ends it.

    Raises:
        OSError: The port is taken.
    """
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=1.0, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner


def _probe(check: Check) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        wrong = check()
        return web.Response(text="\n".join(wrong) or "ok", status=503 if wrong else 200)

    return answer
