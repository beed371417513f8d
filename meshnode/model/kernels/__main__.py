"""``python -m meshnode.model.kernels`` compiles the kernels into the package, for images."""

from __future__ import annotations

from meshnode.model.kernels.build import NoKernels, bring


def main() -> None:
    """Compile, and print a line for each library. Exits with a message if that cannot be done."""
    try:
        for path in bring():
            print(path)
    except (NoKernels, OSError) as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
