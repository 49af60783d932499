"""The suite that a backend passes: it computes what the reference interpreter computes.

::

    pytest --pyargs mixad.conformance --mixad-backend=NAME

The backend is found by its name, as users find it: its plugin is installed, or registered by a
plugin of pytest (``-p``).  It is tested with arrays of the first library that its capability names;
NumPy where that is among them.  Another conversion is given by ``--mixad-arrays=MODULE``, a module
with two functions: ``to_library(array)``, from a NumPy array to one that the backend serves, and
``to_numpy(array)``, back.  ``--mixad-examples=10`` runs ten times as many random examples.

A test is skipped only where the capability does not declare what it needs, or the array library has
no such arrays; the reason says which.  The last lines of a run count what was executed.
"""
