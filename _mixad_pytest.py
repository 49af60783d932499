"""The options of mixad's conformance suite, for pytest: see `mixad.conformance`.

pytest reads options before it knows of a package named by ``--pyargs``, so they come through an
entry point.  It is a module of its own because every run of pytest imports it: it imports nothing.
"""


def pytest_addoption(parser):
    """Add the options."""
    group = parser.getgroup("mixad", "conformance of backends of mixad")
    group.addoption(
        "--mixad-backend",
        metavar="NAME",
        help="run mixad.conformance for the backend of this name",
    )
    group.addoption(
        "--mixad-arrays",
        metavar="MODULE",
        help="module with to_library and to_numpy, which convert between NumPy arrays and those "
        "that the backend is given (default: by the backend's capability)",
    )
    group.addoption(
        "--mixad-examples",
        metavar="FACTOR",
        type=int,
        default=1,
        help="run so many times as many random examples",
    )
