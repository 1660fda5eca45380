"""``python -m nabla``: the same as the ``nabla`` command."""

from nabla_core.cli.main import main

if __name__ == "__main__":
    main()
