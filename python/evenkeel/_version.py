from evenkeel import _core

__version__: str = _core.version()
