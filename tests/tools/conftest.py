"""The explorer as a server on a free port, and lessons that nobody has tried yet."""

import socket
import threading

import pytest


@pytest.fixture(scope="module")
def server():
    """The address of a running explorer."""
    uvicorn = pytest.importorskip("uvicorn")
    from mpsref.explore.app import application

    listening = socket.create_server(("127.0.0.1", 0))
    running = uvicorn.Server(uvicorn.Config(application(), log_level="error"))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    running.should_exit = True
    thread.join()


@pytest.fixture
def first_tries(monkeypatch):
    """No exercise has been tried before, nor is it after a test."""
    from mpsref.lessons import answer

    monkeypatch.setattr(answer, "_tries", {})
